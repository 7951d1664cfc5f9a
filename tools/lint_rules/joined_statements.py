#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""joined_statements.py [--fix] [--allow LIST [--update]] FILE...: statements that are joined by commas (`a = 1, b = 2;`), which clang-tidy 14 has
no check for. Declarations, for headers, arguments and initialisers may have commas. Prints file:line, exits 1 if there
are any. LIST names files that had some when the rule came, "file count": a file may have no more than that, and --update
writes what is left. With --fix: writes them as statements of their own, in braces where one stood below an if or a loop."""
import argparse
import re
import sys

TOKEN = re.compile(
    r'''(?P<skip>\s+|//(?:\\\n|[^\n])*|/\*.*?\*/)
    |(?P<directive>(?<![^\n])[ \t]*\#(?:\\\n|[^\n])*)
    |(?P<raw>(?:u8|[uUL])?R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)")
    |(?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
    |(?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])*')
    |(?P<number>\.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<mark><<=|>>=|<=>|\.\.\.|->\*|::|->|\+\+|--|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)''',
    re.X | re.S)
OPEN, CLOSE = {'(': ')', '[': ']', '{': '}'}, {')', ']', '}'}
ASSIGN = {'=', '+=', '-=', '*=', '/=', '%=', '&=', '|=', '^=', '<<=', '>>='}
CONTROL = {'if', 'for', 'while', 'switch', 'catch'}
JUMPS = {'return', 'co_return', 'co_yield', 'throw'}
PREFIX_WORDS = {'delete', 'new', 'sizeof', 'not', 'co_await', 'typename'}
CONTINUES = {';', ',', ')', ']', '.', '(', '[', '->', '?', ':', '+', '/', '<<', '>>', '&&', '||', '==', '!='}


def tokens_of(text):
    out = []
    for m in TOKEN.finditer(text):
        if m.lastgroup != 'skip' and not (m.lastgroup == 'directive'):
            kind = 'raw' if m.lastgroup == 'tag' else m.lastgroup
            out.append((kind, m.group(), m.start(), m.end()))
    return out


class Joined:
    """first token, commas, token of the ';', whether it stands below a control statement, whether it jumps."""

    def __init__(self, first, commas, end, below, jumps):
        self.first, self.commas, self.end, self.below, self.jumps = first, commas, end, below, jumps


def closing(tokens, at):
    depth = 0
    for i in range(at, len(tokens)):
        if tokens[i][1] in OPEN and tokens[i][0] == 'mark':
            depth += 1
        elif tokens[i][1] in CLOSE and tokens[i][0] == 'mark':
            depth -= 1
            if depth == 0:
                return i
    return len(tokens) - 1


def depth_zero(tokens, first, end):
    """Indices between first and end that stand in no bracket."""
    i = first
    while i < end:
        yield i
        i = closing(tokens, i) if tokens[i][0] == 'mark' and tokens[i][1] in OPEN else i
        i += 1


def is_expression(tokens, first, end):
    """Whether tokens [first, end) are an assignment, a call, or an increment, and no declaration."""
    if first >= end:
        return False
    flat = list(depth_zero(tokens, first, end))
    text = [tokens[i][1] for i in flat]
    for k in range(len(flat) - 1):
        here, after = tokens[flat[k]], tokens[flat[k + 1]]
        if here[0] == 'word' and after[0] == 'word' and here[1] not in PREFIX_WORDS:
            return False  # a type and a name
    assigned = next((k for k, t in enumerate(text) if t in ASSIGN and tokens[flat[k]][0] == 'mark'), None)
    if assigned is not None:
        left = text[:assigned]
        # `Type* name = ...`, `Type& name = ...`, `Type<X> name = ...`
        return not any(left[k] in ('*', '&', '&&', '>') and k > 0 and left[k - 1] not in ('(', ',') for k in range(len(left)))
    if any(text[k] in ('*', '&', '&&', '>', '>>') and tokens[flat[k + 1]][0] == 'word' for k in range(1, len(text) - 1)):
        return False  # `Type* name(...)`, `Type<X> name(...)`
    if text[0] in ('++', '--') or text[-1] in ('++', '--'):
        return True
    return text[-1] == '(' and tokens[flat[0]][0] in ('word', 'mark') and text[0] not in ('[',) and len(flat) > 1


def angles(tokens, first, end):
    """How many < stay open."""
    text = [tokens[i][1] for i in depth_zero(tokens, first, end)]
    return text.count('<') - text.count('>') - 2 * text.count('>>')


def statement(tokens, first, end):
    """A Joined for the statement [first, end), where tokens[end] is its ';', or None."""
    below = False
    while first < end:
        word = tokens[first][1]
        if word in CONTROL:
            at = first + 1
            while at < end and tokens[at][1] != '(':
                at += 1
            first, below = closing(tokens, at) + 1, True
        elif word in ('else', 'do'):
            first, below = first + 1, True
        elif word in ('case', 'default', 'public', 'private', 'protected'):
            at = first + 1
            while at < end and tokens[at][1] != ':':
                at = closing(tokens, at) if tokens[at][1] in OPEN else at
                at += 1
            first, below = at + 1, False
        elif word == '[' and tokens[first + 1][1] == '[':
            first = closing(tokens, first) + 1
        else:
            break
    jumps = first < end and tokens[first][1] in JUMPS
    start = first + 1 if jumps else first
    commas = [i for i in depth_zero(tokens, start, end) if tokens[i][1] == ',' and tokens[i][0] == 'mark']
    if not commas:
        return None
    bounds = [start - 1] + commas + [end]
    parts = [(bounds[k] + 1, bounds[k + 1]) for k in range(len(bounds) - 1)]
    if jumps:
        parts = parts[:-1]
    if any(angles(tokens, a, b) for a, b in parts) and not angles(tokens, first, end):
        return None  # the comma stands between arguments of a template
    if not all(is_expression(tokens, a, b) for a, b in parts):
        return None
    return Joined(first, commas, end, below, jumps)


def find(tokens):
    out, stack = [], []  # stack: first token of the statement that each open bracket interrupts, None in ( and [
    first = 0
    for i, (kind, text, _, _) in enumerate(tokens):
        if kind != 'mark':
            continue
        if text in OPEN:
            stack.append((text, first))
            if text == '{':
                first = i + 1
        elif text in CLOSE and stack:
            opened, outer = stack.pop()
            if opened == '{':
                after = tokens[i + 1][1] if i + 1 < len(tokens) else ''
                inside = bool(stack) and stack[-1][0] != '{'
                first = outer if inside or after in CONTINUES else i + 1
        elif text == ';' and (not stack or stack[-1][0] == '{'):
            found = statement(tokens, first, i)
            if found:
                out.append(found)
            first = i + 1
    return out


def fixed(text, tokens, found):
    for f in sorted(found, key=lambda f: -f.first):
        begin, end = tokens[f.first][2], tokens[f.end][3]
        body, last, cut = '', begin, 0
        for comma in f.commas:
            body += text[last:tokens[comma][2]] + ';'
            last, cut = tokens[comma][3], len(body)
        body += text[last:end]
        if f.jumps:
            word = tokens[f.first][1]
            body = body[len(word):cut] + ' ' + word + body[cut:]
        if f.below:
            line_end = text.find('\n', end)
            rest = text[end:line_end]
            if rest.lstrip().startswith('//'):  # its comment stays with it
                body, end = body + rest + '\n', line_end
            body = '{ ' + body + ' }'
        text = text[:begin] + body + text[end:]
    return text


def fix(name, text, tokens, found):
    # One at a time from the innermost: a joined statement may hold a lambda with another.
    while found:
        text = fixed(text, tokens, [max(found, key=lambda f: f.first)])
        tokens = tokens_of(text)
        found = find(tokens)
    with open(name, 'w', encoding='utf-8') as file:
        file.write(text)


def listed(path):
    with open(path, encoding='utf-8') as file:
        return {line.split()[0]: int(line.split()[1]) for line in file if line.strip() and not line.startswith('#')}


def write(path, counts):
    with open(path, 'w', encoding='utf-8') as file:
        file.write('# SPDX-License-Identifier: Apache-2.0\n')
        file.write('# Files with statements joined by commas: file, count. The list may only shrink: mend a file with\n')
        file.write('# tools/lint_rules/joined_statements.py --fix FILE and clang-format -i FILE, then tools/lint commas --update.\n')
        for name, count in sorted(counts.items()):
            file.write(f'{name} {count}\n')


def main(arguments):
    options = argparse.ArgumentParser()
    options.add_argument('--fix', action='store_true')
    options.add_argument('--update', action='store_true')
    options.add_argument('--allow')
    options.add_argument('files', nargs='*')
    options = options.parse_args(arguments)
    allowed = listed(options.allow) if options.allow else {}
    faults, left = 0, {}
    for name in options.files:
        with open(name, encoding='utf-8') as file:
            text = file.read()
        tokens = tokens_of(text)
        found = find(tokens)
        if options.fix:
            fix(name, text, tokens, found)
            continue
        if found and name in allowed:
            left[name] = min(len(found), allowed[name])
        if len(found) <= allowed.get(name, 0):
            continue
        faults += 1
        for f in found:
            line = text.count('\n', 0, tokens[f.first][2]) + 1
            print(f'{name}:{line}: statements joined by a comma, want each on its own')
        if name in allowed:
            print(f'{name}: {len(found)} of them; it had {allowed[name]}, and may only have fewer')
    if allowed:
        print(f'commas: {sum(left.values())} joined statements in {len(left)} files, {sum(allowed.values())} in the list')
    if options.update:
        write(options.allow, left)
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
