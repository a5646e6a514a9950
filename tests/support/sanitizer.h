#ifndef FA_TESTS_SUPPORT_SANITIZER_H_
#define FA_TESTS_SUPPORT_SANITIZER_H_

namespace fa::test {

/// Built for a sanitizer, under which everything takes five to ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_SANITIZER_H_
