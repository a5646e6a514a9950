#ifndef FA_TESTS_TOOLS_JSON_SCHEMA_H_
#define FA_TESTS_TOOLS_JSON_SCHEMA_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fa::test {

/// A JSON schema with the keywords of draft 2020-12 that docs/schema uses. If a schema has another keyword, every value
/// counts as wrong, so that no keyword goes unchecked.
class JsonSchema {
 public:
  explicit JsonSchema(nlohmann::json document) : document_(std::move(document)) {}

  /// Checks the value against the schema `name` of $defs. Returns one line per mistake.
  [[nodiscard]] std::vector<std::string> Errors(const std::string& name, const nlohmann::json& value) const;
  /// Returns the names of $defs.
  [[nodiscard]] std::vector<std::string> Names() const;

 private:
  void Check(const nlohmann::json& schema, const nlohmann::json& value, const std::string& place,
             std::vector<std::string>& errors) const;
  void CheckObject(const nlohmann::json& schema, const nlohmann::json& value, const std::string& place,
                   std::vector<std::string>& errors) const;

  nlohmann::json document_;
};

}  // namespace fa::test

#endif  // FA_TESTS_TOOLS_JSON_SCHEMA_H_
