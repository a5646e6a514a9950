#ifndef FA_TOOLS_FA_CACHE_FORM_H_
#define FA_TOOLS_FA_CACHE_FORM_H_

#include <string>

#include "fa/cache_rows.h"

namespace fa::tool {

/// Returns the form that "BnBsND", "BnNBsD" or "NZ" names; "" stands for the first. Throws UsageError naming --form.
[[nodiscard]] CacheForm ParseCacheForm(const std::string& text);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CACHE_FORM_H_
