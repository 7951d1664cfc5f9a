#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dangling_ranges.py FILE...: a range-for over something inside a temporary, `for (x : f()["key"])`, `f().at(0)`, `f().items()`, `*f()`.
Before C++23 the temporary is destroyed before the first turn: a use after free, which no compiler of ours says. A member, `f().list`, is
kept alive, and so is a result by value, `f().names()`. What a function returns is read from its declarations in FILE...; a name that
is declared both ways, or that nobody declares, is not judged. Prints file:line, exits 1 if there are any."""
import re
import sys

from joined_statements import CLOSE, OPEN, closing, tokens_of

# Of the standard library and of nlohmann::json: what lies in the object that it is called on, and what is made anew.
INSIDE = {'at', 'back', 'front', 'get_ref', 'items', 'value'}
MADE = {'array', 'dump', 'make_optional', 'make_pair', 'make_shared', 'make_tuple', 'make_unique', 'object', 'parse', 'str', 'substr', 'to_string'}
CONTAINERS = {'array', 'deque', 'json', 'list', 'map', 'optional', 'ordered_json', 'set', 'string', 'tuple', 'unordered_map', 'vector'}
OWNERS = re.compile(r'\b(optional|shared_ptr|unique_ptr)$')  # that * and -> lead into
VIEWS = re.compile(r'(view|span|Span|View|Ref|Pointer|iterator|initializer_list)$')
NO_RANGE = {'void', 'bool', 'char', 'int', 'unsigned', 'long', 'short', 'float', 'double', 'size_t', 'ptrdiff_t', 'int32_t', 'int64_t',
            'uint8_t', 'uint16_t', 'uint32_t', 'uint64_t'}
NO_TYPE = {'return', 'else', 'do', 'new', 'delete', 'throw', 'case', 'goto', 'operator', 'typename', 'class', 'struct', 'co_return',
           'not', 'and', 'or', 'if', 'while', 'for', 'switch', 'catch', 'sizeof', 'using', 'template', 'const', 'constexpr', 'decltype'}


def opening_angle(tokens, at):
    """Of the > at `at`: its <, or None where it compares."""
    depth = 0
    for i in range(at, max(at - 60, -1), -1):
        text = tokens[i][1]
        depth += {'>': 1, '>>': 2, '<': -1, '<<': -2}.get(text, 0)
        if depth <= 0:
            return i if text == '<' else None
        if text in (';', '{', '}'):
            return None
    return None


def closing_angle(tokens, at, end):
    depth = 0
    for i in range(at, end):
        depth += {'<': 1, '<<': 2, '>': -1, '>>': -2}.get(tokens[i][1], 0)
        if depth <= 0:
            return i
    return None


def type_before(tokens, at):
    """The name of the type that stands before tokens[at], 'ref' for a reference or a pointer, None for no type."""
    if at < 0:
        return None
    kind, text = tokens[at][:2]
    if text in ('&', '*', '&&'):
        return 'ref' if type_before(tokens, at - 1) else None
    if text in ('>', '>>'):
        opened = opening_angle(tokens, at)
        return type_before(tokens, opened - 1) if opened else None
    return text if kind == 'word' and text not in NO_TYPE else None


def returns(tokens):
    """{name: types} of the functions and lambdas that are declared there: 'auto' for a value of any type."""
    out = {}
    for i in range(1, len(tokens) - 1):
        kind, name = tokens[i][:2]
        if kind != 'word' or name in NO_TYPE:
            continue
        if tokens[i + 1][1] == '(':
            at = i - 1
            while at > 0 and tokens[at][1] == '::' and tokens[at - 1][0] == 'word':
                at -= 2
            found = type_before(tokens, at)
            if found == 'auto' and tokens[closing(tokens, i + 1) + 1][1] in ('->', 'const'):
                found = '?'
        elif tokens[i + 1][1] == '=' and i + 2 < len(tokens) and tokens[i + 2][1] == '[':
            at = closing(tokens, i + 2) + 1
            at = closing(tokens, at) + 1 if tokens[at][1] == '(' else at
            found = 'auto' if tokens[at][1] == '{' else '?'
        else:
            continue
        if found and found not in NO_RANGE:
            out.setdefault(name, set()).add(found)
    return out


class Names:
    """What a call of a name gives."""

    def __init__(self, everywhere, here):
        self.everywhere, self.here = everywhere, here

    def types(self, name):
        return self.here.get(name) or self.everywhere.get(name) or set()

    def made(self, name, qualifier):
        """The type of the value that calling it makes, or None. qualifier: what stands before its last ::, or ''."""
        if qualifier in CONTAINERS and name in MADE:
            return 'auto'
        types = self.types(name)
        if not types:
            if name[0].isupper() or (qualifier and name in CONTAINERS):
                return name  # a constructor
            return 'auto' if name in MADE else None
        if len(types) > 1 or types & {'ref', '?'}:
            return None
        found = next(iter(types))
        return None if VIEWS.search(found) else found

    def inside(self, name):
        """Whether its result lies in the object that it is called on."""
        types = self.types(name)
        return all(t == 'ref' or VIEWS.search(t) for t in types) if types else name in INSIDE


def skip_arguments(tokens, at, end):
    """Behind the template arguments that begin at `at`, if any do."""
    if at < end and tokens[at][1] == '<':
        closed = closing_angle(tokens, at, end)
        if closed and closed + 1 < end and tokens[closed + 1][1] in ('(', '{', '::'):
            return closed + 1
    return at


def dangles(tokens, first, end, names):
    """Whether the range [first, end) lies in a temporary that nobody keeps."""
    if tokens[first][1] == '*':
        made = walk(tokens, first + 1, end, names)
        return made[0] == 'inside' or (made[0] == 'value' and bool(OWNERS.search(made[1])))
    return walk(tokens, first, end, names)[0] == 'inside'


def walk(tokens, first, end, names):
    """('value', type), ('inside', ''), or ('kept', '') for all that is not known to die."""
    kept, i, name, qualifier = ('kept', ''), first, '', ''
    state = kept
    if tokens[i][1] == '(':
        closed = closing(tokens, i)
        inner = i + 1
        if dangles(tokens, inner, closed, names):
            state = ('inside', '')
        elif tokens[inner][1] != '*':
            state = walk(tokens, inner, closed, names)
        i = closed + 1
    while i < end and tokens[i][0] == 'word' and state == kept:
        name, i = tokens[i][1], skip_arguments(tokens, i + 1, end)
        if i < end and tokens[i][1] == '::':
            qualifier, i = name, i + 1
            continue
        if i < end and tokens[i][1] in ('(', '{'):
            made = names.made(name, qualifier)
            state = ('value', made) if made else kept
            i = closing(tokens, i) + 1
        break
    while i < end:
        mark = tokens[i][1]
        if mark == '[':
            state = kept if state == kept else ('inside', '')
            i = closing(tokens, i) + 1
        elif mark in ('.', '->') and i + 1 < end and tokens[i + 1][0] == 'word':
            name, i = tokens[i + 1][1], skip_arguments(tokens, i + 2, end)
            if mark == '->' and state[0] == 'value':
                state = ('inside', '') if OWNERS.search(state[1]) else kept
            if i < end and tokens[i][1] == '(':
                made = names.made(name, '')
                if made and name not in INSIDE:
                    state = ('value', made)
                elif state != kept:
                    state = ('inside', '') if names.inside(name) else kept
                i = closing(tokens, i) + 1
        else:
            return kept  # an operator: its result is another value
    return state


def ranges(tokens):
    """[first, end) of the range of each range-for, with the token of its `for`."""
    for at, token in enumerate(tokens[:-1]):
        if token[1] != 'for' or token[0] != 'word' or tokens[at + 1][1] != '(':
            continue
        end, i, colon, asked = closing(tokens, at + 1), at + 2, None, False
        while i < end:
            text = tokens[i][1]
            if tokens[i][0] == 'mark' and text in OPEN and text not in CLOSE:
                i = closing(tokens, i)
            elif text == ';':
                colon = None
            elif text == '?':
                asked = True
            elif text == ':' and colon is None and not asked:
                colon = i
            i += 1
        if colon is not None and colon + 1 < end:
            yield at, colon + 1, end


def main(files):
    texts = {}
    for name in files:
        with open(name, encoding='utf-8') as file:
            texts[name] = file.read()
    tokens = {name: tokens_of(text) for name, text in texts.items()}
    own = {name: returns(t) for name, t in tokens.items()}
    everywhere = {}
    for declared in own.values():
        for name, types in declared.items():
            everywhere.setdefault(name, set()).update(types)
    faults = 0
    for name in files:
        here = {word: types for word, types in own[name].items() if types == {'auto'}}  # lambdas are seen in their file alone
        known = Names(everywhere, here)
        for at, first, end in ranges(tokens[name]):
            if dangles(tokens[name], first, end, known):
                faults += 1
                line = texts[name].count('\n', 0, tokens[name][at][2]) + 1
                range_text = ' '.join(texts[name][tokens[name][first][2]:tokens[name][end - 1][3]].split())
                print(f'{name}:{line}: a range-for over a part of a temporary, `{range_text}`: want the temporary in a variable of its own')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
