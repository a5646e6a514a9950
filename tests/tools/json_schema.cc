#include "tools/json_schema.h"

#include <algorithm>

namespace fa::test {
namespace {

using nlohmann::json;

bool HasType(const json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "integer") return value.is_number_integer();
  return type == "number" && value.is_number();
}

bool HasOneOfTypes(const json& value, const json& types) {
  if (types.is_string()) return HasType(value, types);
  return std::any_of(types.begin(), types.end(), [&](const json& type) { return HasType(value, type); });
}

/// Returns whether a value satisfies a limit on numbers or on sizes. Values other than numbers and arrays satisfy every
/// limit.
bool KeepsLimit(const std::string& word, double limit, const json& value) {
  if (word == "minItems") return !value.is_array() || static_cast<double>(value.size()) >= limit;
  if (word == "maxItems") return !value.is_array() || static_cast<double>(value.size()) <= limit;
  if (!value.is_number()) return true;
  const auto number = value.get<double>();
  if (word == "minimum") return number >= limit;
  if (word == "maximum") return number <= limit;
  return word == "exclusiveMinimum" && number > limit;
}

bool IsLimit(const std::string& word) {
  return word == "minItems" || word == "maxItems" || word == "minimum" || word == "maximum" ||
         word == "exclusiveMinimum";
}

bool IsOfObjects(const std::string& word) {
  return word == "properties" || word == "required" || word == "additionalProperties" || word == "dependentRequired";
}

}  // namespace

std::vector<std::string> JsonSchema::Errors(const std::string& name, const json& value) const {
  std::vector<std::string> errors;
  Check({{"$ref", "#/$defs/" + name}}, value, name, errors);
  return errors;
}

std::vector<std::string> JsonSchema::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, schema] : document_.at("$defs").items()) names.push_back(name);
  return names;
}

void JsonSchema::Check(const json& schema, const json& value, const std::string& place,
                       std::vector<std::string>& errors) const {
  for (const auto& [word, wanted] : schema.items()) {
    if (word == "description") continue;
    if (word == "$ref") {
      const std::string target = wanted;
      Check(document_.at(json::json_pointer(target.substr(1))), value, place, errors);
    } else if (word == "type") {
      if (!HasOneOfTypes(value, wanted)) errors.push_back(place + ": " + value.dump() + ", want " + wanted.dump());
    } else if (word == "enum") {
      if (std::find(wanted.begin(), wanted.end(), value) == wanted.end()) {
        errors.push_back(place + ": " + value.dump() + ", want one of " + wanted.dump());
      }
    } else if (word == "items") {
      for (size_t i = 0; value.is_array() && i < value.size(); ++i) {
        Check(wanted, value[i], place + "[" + std::to_string(i) + "]", errors);
      }
    } else if (IsLimit(word)) {
      if (!KeepsLimit(word, wanted, value)) {
        errors.push_back(place + ": " + value.dump() + ", want " + word + " " + wanted.dump());
      }
    } else if (!IsOfObjects(word)) {
      errors.push_back(place + ": the schema says '" + word + "', which is not checked");
    }
  }
  if (value.is_object()) CheckObject(schema, value, place, errors);
}

void JsonSchema::CheckObject(const json& schema, const json& value, const std::string& place,
                             std::vector<std::string>& errors) const {
  const json properties = schema.value("properties", json::object());
  const json others = schema.value("additionalProperties", json(true));
  const auto want = [&](const json& names) {
    for (const std::string name : names) {
      if (!value.contains(name)) errors.push_back(place + ": no '" + name + "'");
    }
  };
  want(schema.value("required", json::array()));
  const json dependents = schema.value("dependentRequired", json::object());
  for (const auto& [name, names] : dependents.items()) {
    if (value.contains(name)) want(names);
  }
  for (const auto& [name, member] : value.items()) {
    if (properties.contains(name)) {
      Check(properties[name], member, place + "." + name, errors);
    } else if (others.is_object()) {
      Check(others, member, place + "." + name, errors);
    } else if (!others.get<bool>()) {
      errors.push_back(place + ": '" + name + "' is in no schema");
    }
  }
}

}  // namespace fa::test
