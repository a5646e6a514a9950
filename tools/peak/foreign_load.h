#ifndef FA_PEAK_FOREIGN_LOAD_H_
#define FA_PEAK_FOREIGN_LOAD_H_

#include <optional>

namespace fa::bench {

/// If other programs use more CPUs than this, a timing is doubtful. compare.py has the same limit.
inline constexpr double kMostForeignCpus = 0.1;

/// Measures how much other programs have used the CPUs on which this process may run, since the object was made.
class ForeignLoad {
 public:
  ForeignLoad();
  /// Returns how many CPUs other programs have used on average. Time that the host of a virtual machine took away
  /// counts too. Returns nothing if the system does not report it, or before 0.2 s have passed, because Linux counts in
  /// ticks of 10 ms.
  [[nodiscard]] std::optional<double> Cpus() const;

 private:
  struct Use {
    double wall = 0;
    double busy = -1;  ///< CPU seconds of all programs; -1 if the system does not report them
    double own = 0;    ///< CPU seconds that this process has used
  };
  [[nodiscard]] static Use Now();

  Use begin_;
};

}  // namespace fa::bench

#endif  // FA_PEAK_FOREIGN_LOAD_H_
