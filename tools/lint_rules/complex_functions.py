#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""complex_functions.py [--update] LIST < files: functions of more than 60 lines or with a complexity over 25, by lizard.
LIST holds those that were there when the rule came, "file function lines complexity": it may only shrink. A function that
is not in it is a fault, and so is one that has grown; one that has become better is printed as news, and --update takes it
out of the list or writes its smaller figures."""
import sys

import lizard

LINES, COMPLEXITY = 60, 25


def measured(files):
    out = {}
    for info in lizard.analyze_files(files, threads=2):
        for f in info.function_list:
            lines = f.end_line - f.start_line + 1
            if lines > LINES or f.cyclomatic_complexity > COMPLEXITY:
                name = f.long_name.split('(')[0].strip().replace(' ', '_')
                if name.endswith('__attribute__'):
                    continue  # of a namespace, which lizard takes for a function
                if name.split('::')[-1] in ('TEST', 'TEST_F', 'TEST_P'):
                    name = ''.join(f.long_name.split()).split('::')[-1]
                key = (info.filename, name)
                # Overloads of one name count as their largest.
                old = out.get(key, (0, 0, 0))
                out[key] = (max(old[0], lines), max(old[1], f.cyclomatic_complexity), f.start_line)
    return out


def listed(path):
    out = {}
    with open(path, encoding='utf-8') as file:
        for line in file:
            if line.strip() and not line.startswith('#'):
                name, function, lines, complexity = line.split()
                out[(name, function)] = (int(lines), int(complexity))
    return out


def write(path, entries):
    with open(path, 'w', encoding='utf-8') as file:
        file.write('# SPDX-License-Identifier: Apache-2.0\n')
        file.write('# Functions of more than 60 lines or with a complexity over 25: file, function, lines, complexity. The list may\n')
        file.write('# only shrink: tools/lint complexity --update.\n')
        for (name, function), (lines, complexity) in sorted(entries.items()):
            file.write(f'{name} {function} {lines} {complexity}\n')


def main(arguments):
    update = '--update' in arguments
    path = [a for a in arguments if a != '--update'][0]
    found, allowed = measured(sys.stdin.read().split()), listed(path)
    faults = 0
    for (name, function), (lines, complexity, at) in sorted(found.items()):
        limit = allowed.get((name, function))
        if limit is None:
            faults += 1
            print(f'{name}:{at}: {function} has {lines} lines and a complexity of {complexity}, want at most {LINES} and {COMPLEXITY}')
        elif lines > limit[0] or complexity > limit[1]:
            faults += 1
            print(f'{name}:{at}: {function} has {lines} lines and a complexity of {complexity}; it had {limit[0]} and {limit[1]}, '
                  'and may only shrink')
    better = {}
    for key, limit in allowed.items():
        now = found.get(key)
        if now is None or now[:2] != limit and now[0] <= limit[0] and now[1] <= limit[1]:
            better[key] = now
    for (name, function), now in sorted(better.items()):
        print(f'news: {name}: {function} is ' + ('no longer in need of a place in the list' if now is None else
              f'down to {now[0]} lines and a complexity of {now[1]}') + ': tools/lint complexity --update')
    print(f'complexity: {len(found)} functions over the limits, {len(allowed)} in the list')
    if update:
        write(path, {key: found[key][:2] if key in better else allowed[key] for key in allowed if key in found})
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
