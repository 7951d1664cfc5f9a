// SPDX-License-Identifier: Apache-2.0
// Reads a log line by line: console lines, JSON lines, or the rows of a CSV.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "checks/scaler/log_lines.h"

namespace ampcheck::checks::scaler {

namespace {

using nlohmann::json;

constexpr std::int64_t kHeaderWithin = 1000;  ///< lines
constexpr std::size_t kMostKept = 10'000;     ///< torn lines that are remembered by number

/// Calls visit with each part of a text that `mark` separates.
template <class Visit>
void each_part(std::string_view text, char mark, const Visit& visit) {
  while (true) {
    const std::size_t end = std::min(text.find(mark), text.size());
    visit(text.substr(0, end));
    if (end == text.size()) return;
    text.remove_prefix(end + 1);
  }
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\"'";
  const std::size_t begin = text.find_first_not_of(kBlank);
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

/// What Python's json writes for numbers that JSON does not have.
constexpr std::string_view kNotFinite[] = {"NaN", "Infinity", "-Infinity", "nan", "inf", "-inf"};

/// An object with these words in quotes, so that a reader of JSON takes them as text.
std::string with_quoted_words(std::string_view text) {
  std::string out;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto word =
        std::ranges::find_if(kNotFinite, [&](std::string_view one) { return text.substr(at).starts_with(one); });
    if (!quoted && word != std::end(kNotFinite)) {
      out += '"' + std::string(*word) + '"';
      at += word->size();
      continue;
    }
    if (quoted && text[at] == '\\')
      out += text[at++];
    else if (text[at] == '"')
      quoted = !quoted;
    if (at < text.size()) out += text[at++];
  }
  return out;
}

/// Whether a line is an object of JSON.
bool is_object(std::string_view text) {
  if (!text.starts_with('{')) return false;
  const std::size_t name = text.find_first_not_of(" \t", 1);
  return name != std::string_view::npos && text[name] == '"';
}

/// The numbers of one JSON object, nested ones too, without keeping the object.
class Members : public nlohmann::json_sax<json> {
 public:
  Members(Columns& columns, bool trace) : columns_(&columns), trace_(trace) {}
  Found found;
  std::string schema, scaler;
  bool scale_after = false;

  bool null() override { return true; }
  bool boolean(bool value) override { return take(value ? 1 : 0); }
  bool number_integer(number_integer_t value) override { return take(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return take(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return take(value); }
  bool string(string_t& value) override {
    if (key_ == "schema") schema = value;
    if (key_ == "scaler") scaler = value;
    if (const std::optional<double> number = leading_number(value)) take(*number);
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override {
    ++arrays_;
    return true;
  }
  bool end_array() override {
    --arrays_;
    return true;
  }
  bool key(string_t& name) override {
    key_ = name;
    scale_after |= name == "scale_after";
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }
  bool take(double value) {
    if (arrays_ > 0) return true;
    if (const std::optional<Quantity> quantity = columns_->of(key_))
      found.set(trace_ && key_ == "scale" ? Quantity::attempted : *quantity, value);
    return true;
  }

 private:
  Columns* columns_;
  bool trace_;
  int arrays_ = 0;
  std::string key_;
};

/// Most objects in logs are plain: names, numbers, words without escapes, and objects of them. Those are read here, at
/// a tenth of the time; of anything else the answer is no, and the library reads it.
class PlainObject {
 public:
  PlainObject(std::string_view text, Members& to) : text_(text), to_(to) {}

  bool read() {
    while (true) {
      blanks();
      const bool opened = next('{');
      if (opened)
        ++depth_;
      else if (!value())
        return false;
      if (!opened) {
        for (blanks(); next('}'); blanks())
          if (--depth_ == 0) return at_ == text_.size();
        if (!next(',')) return false;
      }
      if (!name()) return false;
    }
  }

 private:
  void blanks() { at_ = std::min(text_.find_first_not_of(" \t", at_), text_.size()); }
  bool next(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool quoted() {
    if (at_ >= text_.size() || text_[at_] != '"') return false;
    const std::size_t end = text_.find_first_of("\"\\", at_ + 1);
    if (end == std::string_view::npos || text_[end] != '"') return false;
    word_.assign(text_, at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return true;
  }
  bool name() {
    blanks();
    if (!quoted()) return false;
    to_.key(word_);
    blanks();
    return next(':');
  }
  bool value() {
    if (quoted()) return to_.string(word_);
    const std::size_t end = text_.find_first_of(",} \t", at_);
    if (end == std::string_view::npos || end == at_) return false;
    const std::string_view token = text_.substr(at_, end - at_);
    at_ = end;
    if (token == "null") return true;
    if (token == "true" || token == "false") return to_.take(token == "true" ? 1 : 0);
    const bool digits = token[0] == '-' || (token[0] >= '0' && token[0] <= '9');
    if (!digits && std::ranges::find(kNotFinite, token) == std::end(kNotFinite)) return false;
    const std::optional<double> number = leading_number(token);
    return number && to_.take(*number);
  }

  std::string_view text_;
  Members& to_;
  std::string word_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

class Reader {
 public:
  Reader(std::string_view text, const ColumnNames& own) : text_(text), columns_(own) {}

  Log read() {
    log_.cut_off = !text_.empty() && text_.back() != '\n';
    if (!text_.empty() && text_.back() == '\n') text_.remove_suffix(1);
    if (text_.empty()) return std::move(log_);
    each_part(text_, '\n', [this](std::string_view line) {
      ++log_.lines;
      take(without_escapes(line, plain_));
    });
    return std::move(log_);
  }

 private:
  void take(std::string_view line) {
    const std::string_view text = trimmed(line);
    if (text.empty()) return;
    if (is_object(text)) return take_json(text);
    if (separator_ != '\0' && take_row(line)) return;
    if (log_.readings.empty() && log_.lines <= kHeaderWithin && header(line)) return;
    take_console(line);
  }

  /// Pieces that overwrote each other with \r: an overflow and the bar behind it are of one step.
  void take_console(std::string_view line) {
    std::optional<Found> event;
    bool known = false, torn = false;
    each_part(line, '\r', [&](std::string_view piece) {
      const std::optional<Found> found = find_in_line(piece, likely_, torn);
      if (!found) return;
      known = true;
      if (found->event == Event::none) likely_ = found->grammar;
      if (event && event->event == Event::skip && found->event == Event::none && !event->has(Quantity::step)) {
        for (std::size_t q = 0; q < kQuantities; ++q)
          if (const auto quantity = static_cast<Quantity>(q); found->has(quantity) && !event->has(quantity))
            event->set(quantity, (*found)[quantity]);
        return;
      }
      if (event) keep(*event);
      event = found;
    });
    if (event && !(torn && event->event == Event::none)) keep(*event);
    if (torn && log_.torn.size() < kMostKept) log_.torn.push_back(log_.lines);
    if (!known) unread(line);
  }

  void take_json(std::string_view text) {
    Members members(columns_, trace_);
    const bool plain = PlainObject(text, members).read();
    if (!plain) members = Members(columns_, trace_);
    if (!plain && !json::sax_parse(with_quoted_words(text), &members)) {
      if (log_.torn.size() < kMostKept) log_.torn.push_back(log_.lines);
      return;
    }
    if (members.schema.starts_with("ampcheck.trace/")) {
      log_.columns = "trace of ampcheck";
      trace_ = true;
      log_.rule = members.scaler;
      return;
    }
    if (trace_ && !members.scale_after) return;  // a tensor of a step
    if (members.found.mask == 0) return unread(text);
    if (log_.columns.empty()) log_.columns = "JSON lines";
    keep(members.found);
  }

  /// A first line of names, one of which is the scale or the loss.
  bool header(std::string_view line) {
    for (const char mark : {',', '\t', ';'}) {
      if (line.find(mark) == std::string_view::npos) continue;
      std::vector<int> names;
      bool numbers = false;
      each_part(line, mark, [&](std::string_view cell) {
        const std::optional<Quantity> name = columns_.of(trimmed(cell));
        names.push_back(name ? static_cast<int>(*name) : -1);
        numbers |= leading_number(cell).has_value();
      });
      const auto known = std::ranges::count_if(names, [](int name) { return name >= 0; });
      if (numbers || known < 2) continue;
      separator_ = mark;
      names_ = std::move(names);
      log_.columns = "CSV";
      return true;
    }
    return false;
  }

  bool take_row(std::string_view line) {
    Found found;
    std::size_t at = 0;
    each_part(line, separator_, [&](std::string_view cell) {
      const std::size_t column = at++;
      if (column >= names_.size() || names_[column] < 0) return;
      const auto name = static_cast<Quantity>(names_[column]);
      const std::string_view text = trimmed(cell);
      if (text == "True" || text == "true") return found.set(name, 1);
      if (text == "False" || text == "false") return found.set(name, 0);
      if (const std::optional<double> number = leading_number(text)) found.set(name, *number);
    });
    if (at == names_.size() && found.mask != 0) {
      keep(found);
      return true;
    }
    if (at > 1 && at < names_.size() && log_.torn.size() < kMostKept) {
      log_.torn.push_back(log_.lines);
      return true;
    }
    return false;
  }

  void keep(const Found& found) {
    log_.add(found, log_.lines);
    ++log_.by_grammar[found.grammar];
  }

  void unread(std::string_view line) {
    for (const Refusal& refusal : refusals())
      if ((log_.refusal == nullptr || refusal.ends > log_.refusal->ends) &&
          line.find(refusal.message) != std::string_view::npos) {
        log_.refusal = &refusal;
        log_.refused_at = log_.lines;
      }
    if (log_.unread++ > 0) return;
    log_.first_unread = log_.lines;
    log_.unread_text = line.substr(0, 80);
  }

  std::string_view text_;
  Columns columns_;
  Log log_;
  std::string plain_;
  int likely_ = -1;
  bool trace_ = false;
  char separator_ = '\0';
  std::vector<int> names_;  ///< of columns, as Quantity; -1: something else
};

}  // namespace

void Log::add(const Found& found, std::int64_t line) {
  Reading reading;
  reading.line = line;
  reading.grammar = found.grammar;
  reading.event = found.event;
  reading.mask_ = found.mask;
  reading.first_ = values_.size();
  for (std::size_t q = 0; q < kQuantities; ++q)
    if (found.has(static_cast<Quantity>(q))) values_.push_back(found.value[q]);
  readings.push_back(reading);
}

Log read_log(std::string_view text, const ColumnNames& columns) { return Reader(text, columns).read(); }

}  // namespace ampcheck::checks::scaler
