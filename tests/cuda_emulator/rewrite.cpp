// Makes device text, preprocessed, text for g++.
#include "rewrite.h"

#include <cctype>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace cuda_emulator {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.remove_suffix(1);
  }
  return std::string(text);
}

// Reads through C++ text: words, literals, and what lies between brackets.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  size_t at() const { return at_; }
  bool is_done() const { return at_ >= text_.size(); }
  char peek() const { return is_done() ? '\0' : text_[at_]; }
  void step() {
    if (!is_done()) ++at_;
  }

  void skip_space() {
    for (;;) {
      while (!is_done() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
      // A line of the preprocessor
      if (peek() != '#') return;
      while (!is_done() && text_[at_] != '\n') ++at_;
    }
  }
  std::string_view word() {
    const size_t begin = at_;
    while (is_word(peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  // Past a literal that begins here.
  void skip_literal() {
    const char quote = text_[at_++];
    while (!is_done() && text_[at_] != quote) at_ += text_[at_] == '\\' ? 2 : 1;
    step();
  }
  // What lies between the bracket that begins here and its partner; goes past both.
  std::string_view in_brackets() {
    const size_t begin = at_ + 1;
    int depth = 0;
    while (!is_done()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        skip_literal();
        continue;
      }
      ++at_;
      if (c == '(' || c == '[' || c == '{') ++depth;
      if (c == ')' || c == ']' || c == '}') {
        if (--depth == 0) return text_.substr(begin, at_ - 1 - begin);
      }
    }
    fail("a bracket has no partner", begin);
  }
  [[noreturn]] void fail(const std::string& what, size_t place) const {
    // The line markers of the preprocessor: # 12 "file"
    long line = 1;
    std::string file = "text";
    for (size_t i = 0; i < place && i < text_.size();) {
      const size_t end = std::min(text_.find('\n', i), text_.size());
      if (text_[i] == '#' && i + 2 < end &&
          std::isdigit(static_cast<unsigned char>(text_[i + 2]))) {
        line = std::strtol(text_.data() + i + 2, nullptr, 10) - 1;
        const size_t quote = text_.find('"', i);
        if (quote < end) file = text_.substr(quote + 1, text_.find('"', quote + 1) - quote - 1);
      }
      if (end < place) ++line;
      i = end + 1;
    }
    throw std::runtime_error(file + ":" + std::to_string(line) + ": " + what);
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// Line breaks, so that what follows keeps its line.
std::string breaks_of(std::string_view text) {
  std::string breaks;
  for (const char c : text) {
    if (c == '\n') breaks += c;
  }
  return breaks;
}

struct Operand {
  std::string constraint;
  std::string expression;
};

// Splits at a character that stands outside brackets and literals.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  Reader reader(text);
  size_t begin = 0;
  while (!reader.is_done()) {
    const char c = reader.peek();
    if (c == '"' || c == '\'') {
      reader.skip_literal();
    } else if (c == '(' || c == '[' || c == '{') {
      reader.in_brackets();
    } else {
      if (c == separator) {
        parts.emplace_back(text.substr(begin, reader.at() - begin));
        begin = reader.at() + 1;
      }
      reader.step();
    }
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

// The text of adjacent string literals.
std::string literal_text(std::string_view text) {
  std::string joined;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '"') continue;
    for (++i; i < text.size() && text[i] != '"'; ++i) {
      if (text[i] != '\\') {
        joined += text[i];
        continue;
      }
      const char escaped = text[++i];
      joined += escaped == 'n' || escaped == 't' || escaped == 'r' ? ' ' : escaped;
    }
  }
  return joined;
}

std::vector<Operand> operands(const std::string& text) {
  std::vector<Operand> found;
  if (trimmed(text).empty()) return found;
  for (const std::string& part : split(text, ',')) {
    const size_t open = part.find('(');
    if (open == std::string::npos) throw std::runtime_error("operand " + part);
    const size_t close = part.rfind(')');
    found.push_back({literal_text(part.substr(0, open)), part.substr(open + 1, close - open - 1)});
  }
  return found;
}

std::string type_of(char constraint) {
  switch (constraint) {
    case 'h':
      return "::cuda_emulator::u16";
    case 'r':
      return "::cuda_emulator::u32";
    case 'l':
      return "::cuda_emulator::u64";
    case 'f':
      return "float";
    case 'd':
      return "double";
    default:
      throw std::runtime_error(std::string("inline PTX: the constraint ") + constraint +
                               " is not known to the emulator");
  }
}

// One PTX program of an asm statement as C++ statements.
class Ptx {
 public:
  Ptx(std::string text, size_t num_outputs) : text_(std::move(text)), num_outputs_(num_outputs) {}

  std::string translate() {
    std::string code;
    std::string statement;
    int depth = 0;  // of the braces of vectors and the brackets of addresses
    for (const char c : text_) {
      const bool is_start = trimmed(statement).empty();
      if (depth == 0 && is_start && (c == '{' || c == '}')) {
        code += c;
        statement.clear();
      } else if (c == ';' && depth == 0) {
        code += translate_statement(trimmed(statement));
        statement.clear();
      } else {
        if (c == '{' || c == '[') ++depth;
        if (c == '}' || c == ']') --depth;
        statement += c;
      }
    }
    if (!trimmed(statement).empty()) code += translate_statement(trimmed(statement));
    return code;
  }

 private:
  std::string operand(std::string text) const {
    text = trimmed(text);
    if (text.empty()) throw std::runtime_error("inline PTX: an operand is missing");
    if (text[0] == '%' && text.size() > 1 && text[1] == '%') {
      std::string name = text.substr(2);
      for (char& c : name) c = c == '.' ? '_' : c;
      return "::cuda_emulator::ptx::sreg_" + name + "()";
    }
    if (text[0] == '%') {
      const size_t index = std::stoul(text.substr(1));
      return (index < num_outputs_ ? "ptx_o" : "ptx_i") + std::to_string(index);
    }
    if (text.rfind("0f", 0) == 0 || text.rfind("0F", 0) == 0) {
      return "__builtin_bit_cast(float, 0x" + text.substr(2) + "u)";
    }
    return text;  // a register of the statement, or an integer
  }

  std::string address(const std::string& text) const {  // [%1], [%1+8], [%1 + -8]
    const std::string inside = text.substr(1, text.size() - 2);
    const size_t plus = inside.find('+');
    std::string code = operand(inside.substr(0, plus));
    if (plus != std::string::npos) code += " + (" + operand(inside.substr(plus + 1)) + ")";
    return "static_cast<::cuda_emulator::u64>(" + code + ")";
  }

  std::string translate_statement(std::string statement) const {
    if (statement.empty()) return "";
    if (statement.rfind(".reg", 0) == 0) {
      const std::string rest = trimmed(statement.substr(4));
      const size_t end = rest.find_first_of(" \t\n");
      return "::cuda_emulator::ptx::reg_" + rest.substr(1, end - 1) + rest.substr(end) + ";";
    }
    std::string guard;
    if (statement[0] == '@') {
      const size_t end = statement.find_first_of(" \t\n");
      const bool negated = statement[1] == '!';
      guard = std::string("if (") + (negated ? "!" : "") +
              operand(statement.substr(negated ? 2 : 1, end - (negated ? 2 : 1))) + ") ";
      statement = trimmed(statement.substr(end));
    }
    const size_t end = std::min(statement.find_first_of(" \t\n"), statement.size());
    const std::string name = statement.substr(0, end);
    std::vector<std::string> arguments;
    if (end < statement.size()) arguments = split(statement.substr(end), ',');
    const std::string base = name.substr(0, name.find('.'));
    if (base == "ld" || base == "st" || base == "atom" || base == "red") {
      return guard + memory_call(base, name, arguments);
    }
    std::string code;
    for (const std::string& argument : arguments) {
      const std::string text = trimmed(argument);
      code += code.empty() ? "" : ", ";
      if (!text.empty() && text[0] == '{') {
        std::string list;
        for (const std::string& part : split(text.substr(1, text.size() - 2), ',')) {
          list += (list.empty() ? "" : ", ") + operand(part);
        }
        code += "{" + list + "}";
      } else if (!text.empty() && text[0] == '[') {
        code += address(text);
      } else {
        code += operand(text);
      }
    }
    return guard + "::cuda_emulator::ptx::" + function_name(name) + "(" + code + ");";
  }

  static std::string function_name(const std::string& name) {
    std::string text;
    for (const char c : name) text += c == '.' || c == ':' ? '_' : c;
    return text;
  }

  std::string memory_call(const std::string& base, const std::string& name,
                          const std::vector<std::string>& arguments) const {
    std::string space = "kGeneric";
    std::string order = base == "atom" || base == "red" ? "kRelaxed" : "kWeak";
    std::string type;
    std::string operation;
    const std::vector<std::string> parts = split(name, '.');
    for (size_t i = 1; i < parts.size(); ++i) {
      std::string part = parts[i];
      part = part.substr(0, part.find(':'));  // shared::cta
      if (part == "global") space = "kGlobal";
      if (part == "shared") space = "kShared";
      if (part == "volatile") order = "kVolatile";
      if (part == "relaxed") order = "kRelaxed";
      if (part == "acquire") order = "kAcquire";
      if (part == "release") order = "kRelease";
      if (part == "acq_rel") order = "kAcqRel";
      for (const char* known : {"add", "min", "max", "exch", "inc", "dec", "cas"}) {
        if (part == known) operation = part;
      }
      for (const char* known : {"and", "or", "xor"}) {
        if (part == known) operation = part + "_";
      }
      type = part;
    }
    std::string code;
    for (const std::string& argument : arguments) {
      std::string text = trimmed(argument);
      if (!text.empty() && text[0] == '[') {
        code += (code.empty() ? "" : ", ") + address(text);
        continue;
      }
      if (!text.empty() && text[0] == '{') text = text.substr(1, text.size() - 2);
      for (const std::string& part : split(text, ',')) {
        code += (code.empty() ? "" : ", ") + operand(part);
      }
    }
    const std::string ptx = "::cuda_emulator::ptx::";
    return ptx + base + "<" + (operation.empty() ? "" : ptx + "AtomicOp::" + operation + ", ") +
           ptx + "t_" + type + ", " + ptx + "Space::" + space + ", " + ptx + "Order::" + order +
           ">(" + code + ");";
  }

  const std::string text_;
  const size_t num_outputs_;
};

// The asm statement whose parentheses hold `body`.
std::string translate_asm(std::string_view body) {
  const std::vector<std::string> parts = split(body, ':');
  const std::vector<Operand> outputs =
      parts.size() > 1 ? operands(parts[1]) : std::vector<Operand>();
  const std::vector<Operand> inputs =
      parts.size() > 2 ? operands(parts[2]) : std::vector<Operand>();
  std::string code = "do { ";
  size_t index = 0;
  for (const Operand& output : outputs) {
    const std::string name = "ptx_o" + std::to_string(index++);
    code += type_of(output.constraint.back()) + " " + name;
    if (output.constraint[0] == '+') {
      code += " = " + type_of(output.constraint.back()) + "(::cuda_emulator::ptx::word_of(" +
              output.expression + "))";
    }
    code += "; ";
  }
  for (const Operand& input : inputs) {
    const std::string name = "ptx_i" + std::to_string(index++);
    if (input.constraint == "n") {
      code += "constexpr auto " + name + " = " + input.expression + "; ";
      continue;
    }
    const std::string type = type_of(input.constraint.back());
    code += type + " " + name + " = (" + type + ")(::cuda_emulator::ptx::word_of(" +
            input.expression + ")); ";
  }
  code += Ptx(literal_text(parts[0]), outputs.size()).translate();
  index = 0;
  for (const Operand& output : outputs) {
    code += " ::cuda_emulator::ptx::give(" + output.expression + ", ptx_o" +
            std::to_string(index++) + ");";
  }
  return code + " } while (0)" + breaks_of(body);
}

class Rewriter {
 public:
  explicit Rewriter(const std::string& text) : text_(text), reader_(text_) {}

  Rewritten run() {
    while (!reader_.is_done()) {
      const char c = reader_.peek();
      if (c == '"' || c == '\'') {
        const size_t begin = reader_.at();
        // The ' of 1'000 follows a digit
        if (c == '\'' && begin > 0 && is_word(text_[begin - 1])) {
          reader_.step();
        } else {
          reader_.skip_literal();
        }
        copy_from(begin);
      } else if (c == '#') {
        const size_t begin = reader_.at();
        while (!reader_.is_done() && reader_.peek() != '\n') reader_.step();
        copy_from(begin);
      } else if (is_word(c)) {
        rewrite_word();
      } else {
        close_kernel(c);
        reader_.step();
        done_.text += c;
        if (c == '{') ++depth_;
        if (c == '}' && --depth_ == kernel_depth_) end_kernel();
      }
    }
    return std::move(done_);
  }

 private:
  void copy_from(size_t begin) { done_.text += text_.substr(begin, reader_.at() - begin); }

  void rewrite_word() {
    const size_t begin = reader_.at();
    const std::string_view word = reader_.word();
    try {
      if (word == "asm" || word == "__asm__" || word == "__asm") {
        rewrite_asm();
      } else if (word == "__global__") {
        is_kernel_ = true;
        bound_.clear();
      } else if (word == "__launch_bounds__" && is_kernel_) {
        reader_.skip_space();
        const std::string_view bound = reader_.in_brackets();
        bound_ = bound;
        done_.text += breaks_of(bound);
      } else if (word == "extern" && rewrite_dynamic_shared()) {
        done_.has_dynamic_shared = true;
      } else {
        if (is_kernel_ && kernel_.empty()) {
          Reader ahead = reader_;
          ahead.skip_space();
          if (ahead.peek() == '(') {
            kernel_ = word;
            kernel_depth_ = depth_;
          }
        }
        copy_from(begin);
      }
    } catch (const std::runtime_error& error) {
      reader_.fail(error.what(), begin);
    }
  }

  void rewrite_asm() {
    for (;;) {
      reader_.skip_space();
      const std::string_view word = reader_.word();
      if (word.empty()) break;
      if (word != "volatile" && word != "__volatile__" && word != "inline") {
        throw std::runtime_error("asm " + std::string(word));
      }
    }
    if (reader_.peek() != '(') throw std::runtime_error("asm without its text");
    done_.text += translate_asm(reader_.in_brackets());
  }

  // extern __shared__ __align__(16) uint8 bytes[];
  bool rewrite_dynamic_shared() {
    Reader ahead = reader_;
    ahead.skip_space();
    if (ahead.word() != "__shared__") return false;
    const size_t begin = ahead.at();
    while (!ahead.is_done() && ahead.peek() != ';') ahead.step();
    std::string declaration = text_.substr(begin, ahead.at() - begin);
    for (const char* word : {"__align__", "alignas"}) {
      const size_t found = declaration.find(word);
      if (found == std::string::npos) continue;
      declaration.erase(found, declaration.find(')', found) + 1 - found);
    }
    const size_t bracket = declaration.find('[');
    if (bracket == std::string::npos) throw std::runtime_error("extern __shared__ of no array");
    const std::string named = trimmed(declaration.substr(0, bracket));
    size_t name = named.size();
    while (name > 0 && is_word(named[name - 1])) --name;
    const std::string type = trimmed(named.substr(0, name));
    done_.text += type + "* const " + named.substr(name) + " = reinterpret_cast<" + type +
                  "*>(::cuda_emulator::dynamic_shared)" + breaks_of(declaration);
    reader_ = ahead;
    return true;
  }

  // A kernel that is declared only.
  void close_kernel(char c) {
    if (c == ';' && is_kernel_ && !kernel_.empty() && depth_ == kernel_depth_) forget_kernel();
  }
  void end_kernel() {
    if (!is_kernel_ || kernel_.empty()) return;
    done_.text += " EMULATOR_EXPORT const ::cuda_emulator::Kernel cuda_emulator_kernel_" + kernel_ +
                  "; const ::cuda_emulator::Kernel cuda_emulator_kernel_" + kernel_ +
                  " = {[](void** params) { ::cuda_emulator::call(" + kernel_ +
                  ", params); }, ::cuda_emulator::launch_bound(" + bound_ + ")};";
    forget_kernel();
  }
  void forget_kernel() {
    is_kernel_ = false;
    kernel_.clear();
    bound_.clear();
    kernel_depth_ = -1;
  }

  const std::string text_;
  Reader reader_;
  Rewritten done_;
  int depth_ = 0;
  bool is_kernel_ = false;
  std::string kernel_;
  std::string bound_;
  int kernel_depth_ = -1;
};

}  // namespace

Rewritten rewrite(const std::string& text) { return Rewriter(text).run(); }

}  // namespace cuda_emulator
