#include "flags/cache_form.h"

#include <fmt/format.h>

#include "flags/failure.h"

namespace fa::tool {

CacheForm ParseCacheForm(const std::string& text) {
  if (text.empty()) return CacheForm::kBnBsND;
  for (const CacheForm form : {CacheForm::kBnBsND, CacheForm::kBnNBsD, CacheForm::kNZ}) {
    if (text == Name(form)) return form;
  }
  throw UsageError(fmt::format("--form: \"{}\", want BnBsND, BnNBsD or NZ", text));
}

}  // namespace fa::tool
