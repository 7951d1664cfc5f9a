// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/report/markdown.h"

#include <fmt/format.h>
#include <md4c.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <vector>

namespace ampcheck::tools {

namespace {

// Marks of inline markup inside a block's text.
constexpr char kBold = '\x01', kCode = '\x02', kEnd = '\x03';
constexpr char kLink = '\x04', kLinked = '\x05', kLinkEnd = '\x06';  // address, then text

struct Block {
  enum class Kind { heading, paragraph, item, code, table } kind = Kind::paragraph;
  int level = 0;                                    ///< of a heading; of an item: how deep its list lies
  std::string marker = {};                          ///< of an item: "-" or "2."; empty: a further paragraph of it
  std::string text = {};                            ///< with marks; of code: verbatim
  std::vector<std::vector<std::string>> rows = {};  ///< of a table, the head first
};

/// A link's text is followed by what a reader without a browser can use.
std::string link_suffix(const std::string& text, std::string_view href) {
  if (href.starts_with("http")) return text == href ? "" : fmt::format(" ({})", href);
  const std::size_t end = href.find(".md");
  if (end == std::string_view::npos || href.find('/') != std::string_view::npos) return "";
  const std::string command = fmt::format("ampcheck explain {}", href.substr(0, end));
  return text.find(command) != std::string::npos ? "" : fmt::format(" ({})", command);
}

/// Collects the blocks of a page from md4c's calls.
class Collector {
 public:
  static std::vector<Block> blocks_of(std::string_view markdown) {
    Collector collector;
    MD_PARSER parser = {};
    parser.flags = MD_FLAG_TABLES | MD_FLAG_NOHTML;
    parser.enter_block = [](MD_BLOCKTYPE type, void* detail, void* self) {
      static_cast<Collector*>(self)->enter(type, detail);
      return 0;
    };
    parser.leave_block = [](MD_BLOCKTYPE type, void*, void* self) {
      static_cast<Collector*>(self)->leave(type);
      return 0;
    };
    parser.enter_span = [](MD_SPANTYPE type, void* detail, void* self) {
      static_cast<Collector*>(self)->enter_span(type, detail);
      return 0;
    };
    parser.leave_span = [](MD_SPANTYPE type, void*, void* self) {
      static_cast<Collector*>(self)->leave_span(type);
      return 0;
    };
    parser.text = [](MD_TEXTTYPE type, const MD_CHAR* text, MD_SIZE size, void* self) {
      static_cast<Collector*>(self)->add(type, std::string_view(text, size));
      return 0;
    };
    if (md_parse(markdown.data(), static_cast<MD_SIZE>(markdown.size()), &parser, &collector) != 0)
      throw std::runtime_error("a page of the manual is no Markdown");
    return collector.blocks_;
  }

 private:
  struct List {
    bool ordered = false;
    unsigned next = 1;
  };

  void begin(Block::Kind kind, int level = 0) { blocks_.push_back({.kind = kind, .level = level}); }

  void enter(MD_BLOCKTYPE type, void* detail) {
    switch (type) {
      case MD_BLOCK_H:
        begin(Block::Kind::heading, static_cast<int>(static_cast<MD_BLOCK_H_DETAIL*>(detail)->level));
        break;
      case MD_BLOCK_P: begin_paragraph(); break;
      case MD_BLOCK_UL: lists_.push_back({}); break;
      case MD_BLOCK_OL: lists_.push_back({true, static_cast<MD_BLOCK_OL_DETAIL*>(detail)->start}); break;
      case MD_BLOCK_LI:
        begin(Block::Kind::item, static_cast<int>(lists_.size()));
        blocks_.back().marker = lists_.back().ordered ? fmt::format("{}.", lists_.back().next++) : "-";
        break;
      case MD_BLOCK_CODE: begin(Block::Kind::code, static_cast<int>(lists_.size())); break;
      case MD_BLOCK_TABLE: begin(Block::Kind::table); break;
      case MD_BLOCK_TR: blocks_.back().rows.emplace_back(); break;
      case MD_BLOCK_TH:
      case MD_BLOCK_TD: blocks_.back().rows.back().emplace_back(); break;
      default: break;
    }
  }

  /// The first paragraph of an item is its text.
  void begin_paragraph() {
    if (lists_.empty()) return begin(Block::Kind::paragraph);
    const bool first =
        blocks_.back().kind == Block::Kind::item && blocks_.back().text.empty() && !blocks_.back().marker.empty();
    if (!first) begin(Block::Kind::item, static_cast<int>(lists_.size()));
  }

  void leave(MD_BLOCKTYPE type) {
    if (type == MD_BLOCK_UL || type == MD_BLOCK_OL) lists_.pop_back();
  }

  std::string& text() {
    Block& block = blocks_.back();
    return block.kind == Block::Kind::table ? block.rows.back().back() : block.text;
  }

  void enter_span(MD_SPANTYPE type, void* detail) {
    if (type == MD_SPAN_STRONG || type == MD_SPAN_EM) text() += kBold;
    if (type == MD_SPAN_CODE) text() += kCode;
    if (type != MD_SPAN_A) return;
    const MD_ATTRIBUTE& href = static_cast<MD_SPAN_A_DETAIL*>(detail)->href;
    text() += kLink + std::string(href.text, href.size) + kLinked;
  }

  void leave_span(MD_SPANTYPE type) {
    if (type == MD_SPAN_STRONG || type == MD_SPAN_EM || type == MD_SPAN_CODE) text() += kEnd;
    if (type == MD_SPAN_A) text() += kLinkEnd;
  }

  void add(MD_TEXTTYPE type, std::string_view part) {
    if (type == MD_TEXT_SOFTBR)
      text() += ' ';
    else if (type == MD_TEXT_BR)
      text() += '\n';
    else
      text() += part;
  }

  std::vector<Block> blocks_;
  std::vector<List> lists_;
};

/// Links as words: their text, and what a reader without a browser can use.
std::string linked(std::string_view text) {
  std::string out;
  for (std::size_t at; (at = text.find(kLink)) != std::string_view::npos;) {
    const std::size_t middle = text.find(kLinked, at), end = text.find(kLinkEnd, at);
    const std::string words(text.substr(middle + 1, end - middle - 1));
    out += std::string(text.substr(0, at)) + words + link_suffix(words, text.substr(at + 1, middle - at - 1));
    text.remove_prefix(end + 1);
  }
  return out + std::string(text);
}

/// The blocks of a page for readers without links.
std::vector<Block> blocks_in_words(std::string_view markdown) {
  std::vector<Block> out = Collector::blocks_of(markdown);
  for (Block& block : out) {
    block.text = linked(block.text);
    for (auto& row : block.rows)
      for (std::string& cell : row) cell = linked(cell);
  }
  return out;
}

bool is_mark(char c) { return c == kBold || c == kCode || c == kEnd; }

/// Columns that a text takes: bytes that begin a character, without marks.
std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !is_mark(c) && (c & 0xC0) != 0x80; }));
}

std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (!is_mark(c)) out += c;
  return out;
}

/// Words in lines of at most `width` columns, each behind `indent` blanks; the first line stands behind `first`.
std::string wrapped(std::string_view text, std::string first, std::size_t indent, std::size_t width) {
  std::string out, line = std::move(first);
  bool fresh = true;
  const auto flush = [&] {
    out += line + "\n";
    line.assign(indent, ' ');
    fresh = true;
  };
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (!fresh && columns_of(line) + 1 + columns_of(word) > width) flush();
    if (!word.empty()) {
      line += fresh ? "" : " ";
      line += word;
      fresh = false;
    }
    if (end < text.size() && text[end] == '\n') flush();
    begin = end + 1;
  }
  return out + line + "\n";
}

std::string indented(std::string_view text, std::size_t indent) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) out += std::string(indent, ' ');
    out += std::string(text.substr(0, end)) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

/// Columns as wide as their widest cell; the last one is wrapped at `width`.
std::string table_text(const std::vector<std::vector<std::string>>& rows, std::size_t width) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], columns_of(row[i]));
    }
  std::string out;
  for (const auto& row : rows) {
    std::string line = "  ";
    for (std::size_t i = 0; i + 1 < row.size(); ++i)
      line += row[i] + std::string(widths[i] - columns_of(row[i]) + 2, ' ');
    const std::size_t indent = columns_of(line);
    out += wrapped(row.empty() ? "" : row.back(), line, indent, std::max(width, indent + 30));
  }
  return out;
}

/// Marks become escape codes of the terminal, or nothing.
std::string styled(std::string_view text, const Style& style) {
  std::string out;
  for (const char c : text) {
    if (c == kBold || c == kCode)
      out += style.bold;
    else if (c == kEnd)
      out += style.reset;
    else
      out += c;
  }
  return out;
}

std::string terminal_block(const Block& block, std::size_t width) {
  switch (block.kind) {
    case Block::Kind::heading: return std::string(1, kBold) + plain(block.text) + kEnd + "\n";
    case Block::Kind::paragraph: return wrapped(block.text, "", 0, width);
    case Block::Kind::code: return indented(block.text, 2 + 2 * static_cast<std::size_t>(block.level));
    case Block::Kind::table: return table_text(block.rows, width);
    case Block::Kind::item: {
      const std::size_t indent = 2 * static_cast<std::size_t>(block.level - 1);
      const std::string first = block.marker.empty() ? "  " : block.marker + " ";
      return wrapped(block.text, std::string(indent, ' ') + first, indent + first.size(), width);
    }
  }
  return "";
}

/// Text that roff does not read as a command of its own.
std::string roff(std::string_view text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    begins = c == '\n';
    switch (c) {
      case kBold:
      case kCode: out += "\\fB"; break;
      case kEnd: out += "\\fR"; break;
      case '\\': out += "\\e"; break;
      case '-': out += "\\-"; break;
      case '\'': out += "\\(aq"; break;
      case '`': out += "\\(ga"; break;
      case '^': out += "\\(ha"; break;
      case '~': out += "\\(ti"; break;
      default: out += c;
    }
  }
  return out;
}

std::string verbatim(const std::string& text) { return ".PP\n.RS 2\n.nf\n" + roff(text) + ".fi\n.RE\n"; }

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string man_block(const Block& block) {
  constexpr std::size_t kWidth = 76;
  switch (block.kind) {
    case Block::Kind::heading:
      return block.level <= 2 ? ".SH " + roff(upper(plain(block.text))) + "\n"
                              : ".SS " + roff(plain(block.text)) + "\n";
    case Block::Kind::paragraph: return ".PP\n" + roff(block.text) + "\n";
    case Block::Kind::code: return verbatim(block.text);
    case Block::Kind::table: return verbatim(table_text(block.rows, kWidth));
    case Block::Kind::item: {
      const std::string marker = block.marker == "-" ? "\\(bu" : block.marker;
      return fmt::format(".IP \"{}\" {}\n{}\n", marker, 2 + 2 * block.level, roff(block.text));
    }
  }
  return "";
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

/// "#ac301-accumulates": small letters, digits and '-'.
std::string anchor_of(std::string_view heading) {
  std::string out;
  for (const char c : plain(heading)) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u) != 0)
      out += static_cast<char>(std::tolower(u));
    else if (!out.empty() && out.back() != '-')
      out += '-';
  }
  while (out.ends_with('-')) out.pop_back();
  return out;
}

/// Inline markup as elements; a link to a page leads to its .html.
std::string html_text(std::string_view text) {
  std::string out;
  std::vector<const char*> open;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == kBold || c == kCode) {
      open.push_back(c == kBold ? "b" : "code");
      out += fmt::format("<{}>", open.back());
    } else if (c == kEnd) {
      out += fmt::format("</{}>", open.back());
      open.pop_back();
    } else if (c == kLink) {
      std::string href(text.substr(i + 1, text.find(kLinked, i) - i - 1));
      i += href.size() + 1;
      if (const std::size_t end = href.find(".md"); end != std::string::npos) href.replace(end, 3, ".html");
      out += fmt::format("<a href=\"{}\">", escaped(href));
    } else if (c == kLinkEnd) {
      out += "</a>";
    } else {
      out += escaped(std::string_view(&c, 1));
    }
  }
  return out;
}

std::string html_table(const Block& block) {
  std::string out = "<table>\n";
  const char* cell_name = "th";
  for (const auto& row : block.rows) {
    out += "<tr>";
    for (const std::string& cell : row) out += fmt::format("<{0}>{1}</{0}>", cell_name, html_text(cell));
    out += "</tr>\n";
    cell_name = "td";
  }
  return out + "</table>\n";
}

std::string html_block(const Block& block) {
  switch (block.kind) {
    case Block::Kind::heading:
      return fmt::format("<h{0} id=\"{1}\">{2}</h{0}>\n", block.level, anchor_of(block.text), html_text(block.text));
    case Block::Kind::paragraph: return "<p>" + html_text(block.text) + "</p>\n";
    case Block::Kind::code: return "<pre>" + escaped(block.text) + "</pre>\n";
    case Block::Kind::table: return html_table(block);
    case Block::Kind::item:
      return fmt::format("<div class=\"item\" style=\"--level:{}\"><span>{}</span><div>{}</div></div>\n", block.level,
                         block.marker == "-" ? "\u2022" : block.marker, html_text(block.text));
  }
  return "";
}

}  // namespace

std::string terminal_text(std::string_view markdown, const Style& style, std::size_t width) {
  std::string out;
  const Block* before = nullptr;
  const std::vector<Block> blocks = blocks_in_words(markdown);
  for (const Block& block : blocks) {
    const bool in_list = before != nullptr && before->kind == Block::Kind::item && block.kind == Block::Kind::item;
    const bool under_heading = before != nullptr && before->kind == Block::Kind::heading && before->level > 1;
    if (before != nullptr && !in_list && !under_heading) out += '\n';
    out += terminal_block(block, width);
    before = &block;
  }
  return styled(out, style);
}

std::string man_page(std::string_view markdown, const ManHead& head) {
  std::string out = fmt::format(".TH \"{}\" \"{}\" \"\" \"ampcheck {}\" \"ampcheck manual\"\n", roff(upper(head.name)),
                                head.section, head.version);
  const std::vector<Block> blocks = blocks_in_words(markdown);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Block& block = blocks[i];
    if (i > 0 || block.kind != Block::Kind::heading) {
      out += man_block(block);
      continue;
    }
    const bool described = blocks.size() > 1 && blocks[1].kind != Block::Kind::heading;
    out += fmt::format(".SH NAME\n{} \\- {}\n{}", roff(head.name), roff(plain(block.text)),
                       described ? ".SH DESCRIPTION\n" : "");
  }
  return out;
}

std::string html_body(std::string_view markdown) {
  std::string out;
  for (const Block& block : Collector::blocks_of(markdown)) out += html_block(block);
  return out;
}

std::string title_of(std::string_view markdown) {
  for (const Block& block : blocks_in_words(markdown))
    if (block.kind == Block::Kind::heading) return plain(block.text);
  return "";
}

}  // namespace ampcheck::tools
