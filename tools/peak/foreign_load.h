#ifndef FA_PEAK_FOREIGN_LOAD_H_
#define FA_PEAK_FOREIGN_LOAD_H_

#include <optional>

namespace fa::bench {

/// What other programs may use of the CPUs without making a timing doubtful, in CPUs; compare.py allows as much.
inline constexpr double kMostForeignCpus = 0.1;

/// What other programs use of the CPUs that this process may run on, from the construction of an object on.
class ForeignLoad {
 public:
  ForeignLoad();
  /// CPUs' worth of time per second until now, with what the host of a virtual machine took away. Nothing where the
  /// system does not tell. Linux counts ticks of 10 ms: of less than 0.2 s nothing can be said.
  [[nodiscard]] std::optional<double> Cpus() const;

 private:
  struct Use {
    double wall = 0;
    double busy = -1;  ///< CPU seconds of all programs; -1: not told
    double own = 0;    ///< of this process
  };
  [[nodiscard]] static Use Now();

  Use begin_;
};

}  // namespace fa::bench

#endif  // FA_PEAK_FOREIGN_LOAD_H_
