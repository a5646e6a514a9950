#include "npy/npy_header.h"

#include <charconv>

#include "npy/npy_file.h"

namespace fa::npy {
namespace {

/// Reads the few kinds of Python literals that a header may have.
class Literals {
 public:
  explicit Literals(std::string_view text) : rest_(text) {}

  [[nodiscard]] char Peek() {
    SkipSpace();
    return rest_.empty() ? '\0' : rest_.front();
  }
  bool Take(char c) {
    if (Peek() != c || rest_.empty()) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void Want(char c) {
    if (!Take(c)) throw FormatError(std::string("malformed header, want '") + c + "'");
  }
  bool TakeWord(std::string_view word) {
    SkipSpace();
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  std::string String() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') throw FormatError("malformed header, want a string");
    rest_.remove_prefix(1);
    const size_t end = rest_.find(quote);
    if (end == std::string_view::npos) throw FormatError("malformed header, a string does not end");
    std::string value(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return value;
  }
  int64_t Size() {
    SkipSpace();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0) throw FormatError("malformed header, want sizes of at least 0 in shape");
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    Take('L');  // Python 2 wrote an L after long integers
    return value;
  }

 private:
  void SkipSpace() {
    const size_t begin = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(begin == std::string_view::npos ? rest_.size() : begin);
  }
  std::string_view rest_;
};

ElementType ReadType(Literals& literals) {
  if (literals.Peek() == '[') throw FormatError("an array of records, want numbers");
  const std::string descr = literals.String();
  if (const auto type = ParseDescr(descr)) return *type;
  if (descr.find('O') != std::string::npos) throw FormatError("an object array (descr '" + descr + "'), want numbers");
  if (!descr.empty() && descr.front() == '>') {
    throw FormatError("big endian (descr '" + descr + "'), want little endian");
  }
  throw FormatError("elements of type '" + descr + "', want a bool, integer or float type");
}

bool ReadBool(Literals& literals) {
  if (literals.TakeWord("True")) return true;
  if (literals.TakeWord("False")) return false;
  throw FormatError("malformed header, want True or False for fortran_order");
}

std::vector<int64_t> ReadShape(Literals& literals) {
  std::vector<int64_t> shape;
  literals.Want('(');
  while (!literals.Take(')')) {
    shape.push_back(literals.Size());
    if (!literals.Take(',') && literals.Peek() != ')') throw FormatError("malformed header, want ',' or ')' in shape");
  }
  return shape;
}

}  // namespace

Header ParseHeader(std::string_view text) {
  Header header;
  bool has_descr = false, has_order = false, has_shape = false;
  const auto once = [](bool& seen, const std::string& key) {
    if (seen) throw FormatError("malformed header, key '" + key + "' twice");
    seen = true;
  };
  Literals literals(text);
  literals.Want('{');
  while (!literals.Take('}')) {
    const std::string key = literals.String();
    literals.Want(':');
    if (key == "descr") {
      once(has_descr, key);
      header.type = ReadType(literals);
    } else if (key == "fortran_order") {
      once(has_order, key);
      header.fortran_order = ReadBool(literals);
    } else if (key == "shape") {
      once(has_shape, key);
      header.shape = ReadShape(literals);
    } else {
      throw FormatError("malformed header, unknown key '" + key + "'");
    }
    if (!literals.Take(',') && literals.Peek() != '}') throw FormatError("malformed header, want ',' or '}'");
  }
  if (literals.Peek() != '\0') throw FormatError("malformed header, text after '}'");
  if (!has_descr || !has_order || !has_shape) {
    throw FormatError("malformed header, want descr, fortran_order and shape");
  }
  return header;
}

std::string FormatHeader(ElementType type, std::span<const int64_t> shape) {
  constexpr size_t kPreamble = 10;  // bytes of the magic, the version and a 16-bit length
  constexpr size_t kAlignment = 64;
  std::string dictionary =
      std::string("{'descr': '") + Descr(type) + "', 'fortran_order': False, 'shape': " + ShapeText(shape) + ", }";
  const size_t used = kPreamble + dictionary.size() + 1;
  dictionary.append((kAlignment - used % kAlignment) % kAlignment, ' ');
  dictionary += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dictionary.size() & 0xff);
  header += static_cast<char>(dictionary.size() >> 8);
  return header + dictionary;
}

}  // namespace fa::npy
