#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "command_line.h"
#include "fuzz/targets/command_words.h"
#include "fuzz/targets/targets.h"
#include "npy/npy_file.h"
#include "tools/scratch_folder.h"

namespace fa::test {
namespace {

void WriteFile(const CommandFile& file) {
  using npy::ElementType;
  static const std::map<char, ElementType> types = {
      {'f', ElementType::kF32}, {'i', ElementType::kI32}, {'b', ElementType::kBool}, {'8', ElementType::kI8}};
  npy::Array array(types.at(file.type), file.shape);
  std::fill_n(array.bytes(), array.size_bytes(), std::byte{0});
  if (file.type == 'f') std::fill(array.as<float>().begin(), array.as<float>().end(), 1.0F);
  npy::Save(file.name, array);
}

/// The folder in which the process runs the commands, with the files that they read.
class CommandFolder {
 public:
  CommandFolder() {
    Require(chdir(folder_.Path("").c_str()) == 0, "chdir");
    for (const CommandFile& file : CommandFiles()) {
      if (file.type != 'x') WriteFile(file);
    }
    (void)folder_.Write("text", "1 2 3\n");
    files_ = Contents();
  }
  /// Returns whether no file was added, removed or changed.
  [[nodiscard]] bool IsUntouched() const { return Contents() == files_; }
  [[nodiscard]] bool Has(const std::string& part_of_a_name) const {
    const std::vector<std::string> names = folder_.Names();
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return name.find(part_of_a_name) != std::string::npos; });
  }
  void Restore() const {
    for (const std::string& name : folder_.Names()) std::filesystem::remove_all(folder_.Path(name));
    for (const auto& [name, bytes] : files_) (void)folder_.Write(name, bytes);
  }

 private:
  [[nodiscard]] std::map<std::string, std::string> Contents() const {
    std::map<std::string, std::string> contents;
    for (const std::string& name : folder_.Names()) contents[name] = folder_.Read(name);
    return contents;
  }

  ScratchFolder folder_;
  std::map<std::string, std::string> files_;
};

/// Captures what the process prints while the object lives. File descriptors 1 and 2 stay as they are, so that a
/// sanitizer's report is seen.
class Printed {
 public:
  Printed() : out_(std::tmpfile()), err_(std::tmpfile()) {
    Require(out_ != nullptr && err_ != nullptr, "tmpfile");
    std::swap(stdout, out_);
    std::swap(stderr, err_);
    cout_ = std::cout.rdbuf(text_.rdbuf());
  }
  ~Printed() {
    std::cout.rdbuf(cout_);
    std::swap(stdout, out_);
    std::swap(stderr, err_);
    std::fclose(out_);
    std::fclose(err_);
  }
  Printed(const Printed&) = delete;
  Printed& operator=(const Printed&) = delete;

  /// Returns the text on stderr as a terminal would show it after progress lines are erased.
  [[nodiscard]] static std::string Errors() {
    std::string text(static_cast<size_t>(std::ftell(stderr)), ' ');
    std::rewind(stderr);
    text.resize(std::fread(text.data(), 1, text.size(), stderr));
    const std::string erased = "\r\x1b[K";
    const size_t at = text.rfind(erased);
    return at == std::string::npos ? text : text.substr(at + erased.size());
  }

 private:
  std::FILE *out_, *err_;
  std::ostringstream text_;
  std::streambuf* cout_;
};

struct Ending {
  int code;
  std::string errors;
};

Ending RunWords(const std::vector<std::string>& words) {
  std::vector<std::string> texts = {"fa"};
  texts.insert(texts.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& text : texts) argv.push_back(text.data());
  argv.push_back(nullptr);
  const Printed printed;
  const int code = tool::RunCommandLine(static_cast<int>(texts.size()), argv.data());
  return {code, Printed::Errors()};
}

}  // namespace

void FuzzCommandLine(std::span<const uint8_t> bytes) {
  static const CommandFolder folder;
  InputBytes input(bytes);
  const std::vector<std::string> words = CommandWords(input);
  if (AsksForGigabytes(words)) return;
  std::string line = "fa";
  for (const std::string& word : words) line += " '" + word + "'";
  const auto [code, errors] = RunWords(words);
  Require(code >= 0 && code <= 2, line);
  if (code == 0) {
    Require(errors.empty(), line + ": " + errors);
    Require(!folder.Has(".part"), line);
  } else {
    Require(errors.starts_with("fa: ") && errors.size() > 8, line + ": " + errors);
    Require(std::count(errors.begin(), errors.end(), '\n') == 1 && errors.ends_with('\n'), line + ": " + errors);
    Require(folder.IsUntouched(), line + ": refused, but wrote");
  }
  if (!folder.IsUntouched()) folder.Restore();
}

}  // namespace fa::test
