// The extension module fa._fa converts Python's arrays and options and calls the library. The interface that Python
// programs use is in src/fa.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "fa/context.h"
#include "fa/operators.h"
#include "fa/version.h"
#include "tensors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {
namespace {

const char* Name(Accumulation accumulation) {
  return accumulation == Accumulation::kDeterministic ? "deterministic" : "atomic-free";
}

/// The keyword arguments of a call. Take removes them one by one.
class Keywords {
 public:
  explicit Keywords(nb::kwargs given) : given_(std::move(given)) {}

  /// Removes and returns the argument `name`, or returns `otherwise` if the call does not have it. Throws TypeError if
  /// the argument's type is wrong.
  template <typename Value>
  Value Take(const char* name, const char* want, Value otherwise) {
    if (!given_.contains(name)) return otherwise;
    const nb::object given = given_[name];
    nb::del(given_[name]);
    Value value;
    if (nb::try_cast(given, value)) return value;
    const nb::str type(nb::handle(given.type()).attr("__name__"));
    Raise(PyExc_TypeError, Arg(name).Says(std::string("want ") + want + ", got " + type.c_str()));
  }

  /// Throws TypeError if an argument is left that no Take has removed.
  void WantNoMore(const char* names) const {
    for (const auto& [name, value] : given_) {
      Raise(PyExc_TypeError, Arg(nb::cast<std::string>(name)).Says(std::string("unknown, want one of ") + names));
    }
  }

 private:
  nb::kwargs given_;
};

std::unique_ptr<Context> MakeContext(const nb::args& others, const nb::kwargs& given) {
  if (others.size() > 0) throw nb::type_error("Context takes its arguments by name: threads, isa, accumulation");
  Keywords keywords(given);
  const int threads = keywords.Take("threads", "a number of threads", 0);
  const auto isa = keywords.Take("isa", "a string or None", std::optional<std::string>());
  const auto accumulation = keywords.Take("accumulation", "a string", std::string(Name(Accumulation::kDeterministic)));
  keywords.WantNoMore("threads, isa, accumulation");
  ContextOptions options;
  options.threads = threads;
  if (isa) {
    options.isa = ParseIsa(*isa);
    if (!options.isa) {
      Raise(Status::InvalidArgument(Arg("isa").Is("\"" + *isa + "\"") + ", want " + IsaNames()));
    }
  }
  if (accumulation == Name(Accumulation::kAtomicFree)) {
    options.accumulation = Accumulation::kAtomicFree;
  } else if (accumulation != Name(Accumulation::kDeterministic)) {
    Raise(Status::InvalidArgument(Arg("accumulation").Is("\"" + accumulation + "\"") +
                                  ", want deterministic or atomic-free"));
  }
  auto context = Context::Create(options);
  Raise(context.status());
  return std::move(*context);
}

/// Returns the arguments with which Context() makes a context of the same settings.
nb::dict SettingsOf(const Context& context) {
  nb::dict settings;
  settings["threads"] = context.threads();
  settings["isa"] = fa::Name(context.isa());
  settings["accumulation"] = Name(context.accumulation());
  return settings;
}

bool Equal(const Context& a, const Context& b) {
  return a.threads() == b.threads() && a.isa() == b.isa() && a.accumulation() == b.accumulation();
}

std::string Text(const Context& context) {
  return "Context(threads=" + std::to_string(context.threads()) + ", isa='" + fa::Name(context.isa()) +
         "', accumulation='" + Name(context.accumulation()) + "')";
}

/// Describes a context to pickle. Unpickling makes a new context with the same settings, which shares no threads or
/// pools with the old one.
nb::tuple Reduced(const nb::object& self) {
  const nb::object partial = nb::module_::import_("functools").attr("partial");
  return nb::make_tuple(partial(self.type(), **SettingsOf(nb::cast<const Context&>(self))), nb::make_tuple());
}

/// Returns the names of the instruction set levels that can run on this machine.
std::vector<std::string> LevelsHere() {
  std::vector<std::string> names;
  for (const Isa isa : AllIsas()) {
    if (CanRun(isa)) names.emplace_back(fa::Name(isa));
  }
  return names;
}

bool ShareOpenMpThreads(const std::string& runtime) {
  const Result<bool> shared = fa::ShareOpenMpThreads(runtime);
  Raise(shared.status());
  return *shared;
}

void BindContext(nb::module_& module) {
  nb::class_<Context>(
      module, "Context", nb::is_weak_referenceable(),
      "Threads, instruction set and accumulation mode of the calls made with it.\n\n"
      "threads: 0 = FA_NUM_THREADS, else every core of the process' affinity mask. isa: a level of this "
      "CPU, such as\n\"portable\" or \"avx512\"; None = the highest. accumulation: "
      "\"deterministic\" (the bits of a result do not\ndepend on the number of threads) or "
      "\"atomic-free\" (may give that up for speed; today it does not).\n\nContexts of equal settings "
      "are equal; a copy or an unpickled one has the "
      "settings and threads of its own."
      "\n\nRaises ValueError for a bad argument, RuntimeError where this CPU lacks isa.")
      .def(nb::new_(&MakeContext))
      .def_prop_ro("threads", &Context::threads)
      .def_prop_ro("isa", [](const Context& context) { return fa::Name(context.isa()); })
      .def_prop_ro("accumulation", [](const Context& context) { return Name(context.accumulation()); })
      .def("__str__", &Context::Describe)
      .def("__eq__", &Equal, nb::is_operator())
      .def("__hash__", [](const Context& context) { return std::hash<std::string>{}(Text(context)); })
      .def("__repr__", &Text)
      .def("__reduce__", &Reduced);
}

}  // namespace
}  // namespace fa::python

NB_MODULE(_fa, module) {
  // A program may still hold objects when it ends, such as a default context. nanobind would report them as leaks on
  // stderr.
  nb::set_leak_warnings(false);
  module.attr("__version__") = FA_VERSION_STRING;
  nb::list operators;
  for (const char* name : fa::kOperatorNames) operators.append(name);
  module.attr("OPERATORS") = nb::tuple(operators);
  fa::python::BindContext(module);
  module.def("levels", &fa::python::LevelsHere);
  module.def("share_openmp_threads", &fa::python::ShareOpenMpThreads, "runtime"_a);
  fa::python::BindMask(module);
  fa::python::BindPairMask(module);
#define FA_BIND(name, function, args, options, text) fa::python::Bind##name(module);
  FA_OPERATORS(FA_BIND)
#undef FA_BIND
  fa::python::BindPlan(module);
  fa::python::BindRanks(module);
  fa::python::BindTensorAttention(module);
  fa::python::BindTensorDecode(module);
  fa::python::BindTensors(module);
}
