#ifndef FA_TOOLS_FA_CACHE_FORM_H_
#define FA_TOOLS_FA_CACHE_FORM_H_

#include <string>

#include "fa/cache_rows.h"

namespace fa::tool {

/// Returns the form with the name "BnBsND", "BnNBsD" or "NZ"; "" means the first. Throws UsageError that names --form.
[[nodiscard]] CacheForm ParseCacheForm(const std::string& text);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CACHE_FORM_H_
