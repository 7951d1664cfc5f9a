#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# lint_test.sh <tools/lint>: a small right tree passes, and each planted fault in it is found at its place. 77: a tool is missing.
set -euo pipefail
lint=$1
for tool in git clang-format shellcheck python3; do
  command -v "$tool" >/dev/null || { echo "lint_test: SKIPPED, no $tool here"; exit 77; }
done
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
export AMPCHECK_LINT_ROOT=$tree AMPCHECK_LINT_COMPLEX=$tree/list AMPCHECK_LINT_JOINED=$tree/list
failed=0

right_tree() {
  rm -rf "${tree:?}"/* "$tree/.git"
  mkdir -p "$tree/src" "$tree/tools"
  printf '%s\n' 'BasedOnStyle: Google' >"$tree/.clang-format"
  cat >"$tree/src/a.cpp" <<'END'
#include <map>
#include <vector>

template <int A, int B>
int pick(int x) {
  return x;
}

int right(int x) {
  int a = 1, b = 2;
  std::vector<std::vector<int>> c(a), d(b);
  std::map<int, int> e;
  const char* text = "a = 1, b = 2;";  // a = 1, b = 2;
  for (a = 0, b = 0; a < b; ++a, ++b) x += a;
  x = pick<1, 2>(x);
  const auto f = [&](int g) { return g + a; };
  return f(x) + static_cast<int>(e.size() + d.size() + c.size()) + *text;
}
END
  printf '%s\n' '#!/bin/sh' "echo \"\$1\"" >"$tree/tools/run"
  echo "no script" >"$tree/tools/words"
  : >"$tree/list"
  git -C "$tree" init -q
}

# check NAME EXPECTED_WORDS RULE: "" for a tree that passes.
check() {
  local name=$1 expected=$2 rule=$3 code=0 out
  git -C "$tree" add -A
  out=$("$lint" "$rule" 2>&1) || code=$?
  if grep -q SKIPPED <<<"$out"; then
    echo "$name: skipped: $(grep -m1 SKIPPED <<<"$out")"
  elif [ -z "$expected" ] && [ "$code" -ne 0 ]; then
    echo "FAILED $name: a right tree was refused: $out"; failed=1
  elif [ -n "$expected" ] && { [ "$code" -ne 1 ] || ! grep -qF -- "$expected" <<<"$out"; }; then
    echo "FAILED $name: want '$expected' and exit 1, got exit $code: $out"; failed=1
  else
    echo "$name: as expected"
  fi
}

# plant FILE TEXT...: lines at the end of a file.
plant() { local file=$tree/$1; shift; printf '%s\n' "$@" >>"$file"; }

right_tree
for rule in format commas ranges shell complexity; do check "right $rule" "" "$rule"; done

plant src/a.cpp '' 'int  wrong(int x){return x;}'
check "a misformatted line" "src/a.cpp:20: not as clang-format writes it" format

right_tree
plant src/a.cpp '' 'void joined(int& a, int& b) {' '  a = 1, b = 2;' '}'
check "a joined statement" "src/a.cpp:21: statements joined by a comma" commas
right_tree
plant src/a.cpp '' 'int joined(int& a, int b) {' '  if (b) a = 1, ++b;' '  return a = b, a;' '}'
check "below an if" "src/a.cpp:21: statements joined by a comma" commas
check "after return" "src/a.cpp:22: statements joined by a comma" commas
echo "src/a.cpp 2" >"$tree/list"
check "that were there before" "" commas
echo "src/a.cpp 1" >"$tree/list"
check "and are more" "src/a.cpp: 2 of them; it had 1" commas
right_tree
plant src/a.cpp '' 'void joined(int& a, int& b) {' '  const auto f = [&] {' '    if (a) {' '      ++b;' '    }' '    a = 1, b = 2;' '  };' '  f();' '}'
check "after a block in a lambda" "src/a.cpp:25: statements joined by a comma" commas
python3 "$(dirname "$lint")/lint_rules/joined_statements.py" --fix "$tree/src/a.cpp"
check "mended" "" commas
grep -q 'a = 1; b = 2;' "$tree/src/a.cpp" || { echo "FAILED mended: $(tail -n 6 "$tree/src/a.cpp")"; failed=1; }
right_tree
plant src/a.cpp '' 'int joined(int& a, int (*f)(const char*)) {' '  return ++a, f(";");' '}'
python3 "$(dirname "$lint")/lint_rules/joined_statements.py" --fix "$tree/src/a.cpp"
grep -q '++a; return f(";");' "$tree/src/a.cpp" || { echo "FAILED a semicolon in a text: $(tail -n 4 "$tree/src/a.cpp")"; failed=1; }

# What functions return is declared in a header of its own; `Parts` is a struct, `View` shows what others hold.
declared() {
  right_tree
  plant src/parts.h 'Parts parts_of(int x);' 'Options parse(int x);' 'Net& parse(char x);' 'const Parts& kept_parts(int x);' 'std::optional<std::vector<int>> found(int x);' \
    'std::vector<std::string> names_of(int x);' 'View view_of(int x);' 'std::shared_ptr<Parts> shared(int x);' \
    'struct Parts {' '  const std::vector<int>& list() const;' '  std::vector<int> copies() const;' '  std::vector<int> numbers;' '};'
}
# ranges NAME EXPECTED RANGE: "over" for a range that is found, "" for one that is right.
ranges() {
  local name=$1 expected=$2 range=$3
  declared
  plant src/a.cpp '' 'void over(int x) {' '  const auto report = [&](int y) { return json::parse(y); };' '  const auto known = [&](int y) -> const json& { return all.at(y); };' \
    "  for (const auto& one : $range) {" '    use(one);' '  }' '}'
  check "$name" "${expected:+src/a.cpp:23: a range-for over a part of a temporary, \`$range\`}" ranges
}
ranges "an element of a temporary" over 'nlohmann::json::parse(text)["runs"]'
ranges "items of a temporary" over 'json::parse(text).at("runs").items()'
ranges "of the result of a lambda" over 'report(x)["runs"]'
ranges "a reference that a method of a temporary gives" over 'parts_of(x).list()'
ranges "of a new object" over 'Parts{x}.list()'
ranges "of an optional" over '*found(x)'
ranges "of an optional's value" over 'found(x).value()'
ranges "behind a shared pointer" over 'shared(x)->numbers'
ranges "in a bracket" over '(*shared(x)).numbers'
ranges "of the first of a list" over 'names_of(x).front()'
for right in 'parts_of(x)' 'parts_of(x).numbers' 'parts_of(x).copies()' 'kept_parts(x).list()' 'kept_parts(x).copies()' 'known(x)["runs"]' 'names_of(x)' \
  'view_of(x)[0]' 'report(x)' 'x > 0 ? kept_parts(x).list() : kept_parts(0).list()' 'parsed["runs"]' 'parsed.at("runs").items()' 'all[parts_of(x).list().front()]' \
  'unheard_of(x).list()'; do
  ranges "right: $right" "" "$right"
done
declared
plant src/a.cpp '' 'void over(int x) {' '  for (auto kept = json::parse(x); auto& one : kept["runs"]) use(one);' '}'
check "right: kept in the loop" "" ranges

right_tree
plant tools/run 'for file in $(ls *.txt); do cd $file; done' 'if [ $x = 1 ]; then rm -rf /"$y"; fi'
check "a fault of a script" "tools/run:3:" shell

right_tree
mkdir -p "$tree/tools/python" "$tree/tests/python"
printf '%s\n' 'import os' '' 'print(os.name)' >"$tree/tools/python/a.py"
check "right python" "" python
printf '%s\n' 'import os' >"$tree/tests/python/b.py"
check "an import that nobody uses" "tests/python/b.py:1:8: F401" python

right_tree
{
  echo
  echo 'int complex_one(int x) {'
  for i in $(seq 26); do printf '  if (x == %d) return %d;\n' "$i" "$i"; done
  printf '  return 0;\n}\n'
} >>"$tree/src/a.cpp"
check "a too complex function" "src/a.cpp:20: complex_one has 29 lines and a complexity of 27" complexity
echo "src/a.cpp complex_one 29 27" >"$tree/list"
check "that was there before" "" complexity
echo "src/a.cpp complex_one 29 26" >"$tree/list"
check "and has grown" "complex_one has 29 lines and a complexity of 27; it had 29 and 26" complexity
exit "$failed"
