# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The record of tools/gpu/run, schema ampcheck.gpu_check/2: written whole after each part, so that nothing is lost to a
# machine that goes away. Reads what tools/gpu/run sets: logs, gpu, commit, record, records and bad.
# shellcheck disable=SC2154

# json_string <text on stdin>: the inside of a JSON string.
json_string() { LC_ALL=C tr -d '\000-\010\013-\037\177-\377' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\t/\\t/g' | awk '{printf "%s%s", (NR > 1 ? "\\n" : ""), $0}'; }

quoted() { printf '"%s"' "$(printf '%s' "$1" | json_string)"; }

# evidence_of <part>: the JSON that the part wrote, or null where it was not written to its end.
evidence_of() {
  local file=$logs/$1.json
  if [ -s "$file" ] && [ "$(tail -c 200 "$file" | tr -d '[:space:]' | tail -c 1)" = "}" ]; then cat "$file"; else echo null; fi
}

# part_record <name> <status> <reason> <exit> <seconds>
part_record() {
  printf '{"name":"%s","status":"%s","reason":%s,"exit":%d,"seconds":%d,"summary":%s,\n"tail":%s,\n"evidence":' \
    "$1" "$2" "$(quoted "$3")" "$4" "$5" "$(quoted "$(grep -a '^= ' "$logs/$1" | cut -c3- || true)")" \
    "$(quoted "$(tail -n 40 "$logs/$1")")"
  evidence_of "$1"
  printf '}'
}

# write_record <finished: true or false>: of the parts so far.
write_record() {
  local separator="" file passed=true
  [ -z "${bad:-}" ] || passed=false
  [ "$1" = true ] || passed=false
  {
    printf '{"schema":"ampcheck.gpu_check/2","gpu":%s,"finished":%s,"passed":%s,"seconds":%d,"commit":%s,\n"parts":[' \
      "$(quoted "$gpu")" "$1" "$passed" "$SECONDS" "$(quoted "$commit")"
    for file in "${records[@]}"; do
      printf '%s\n' "$separator"
      cat "$file"
      separator=,
    done
    printf ']}\n'
  } >"$record.part"
  mv "$record.part" "$record"
}
