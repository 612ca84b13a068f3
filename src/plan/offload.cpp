#include <trireme/base/text.hpp>
#include <trireme/plan/offload.hpp>

namespace trireme::plan {
namespace {

bool takes_effect(const deck::ParallelConfig& parallel) {
  return has_device() || parallel.offload_on_host;
}

}  // namespace

bool has_device() {
#ifdef TRIREME_ON_DEVICE
  return true;
#else
  return false;
#endif
}

bool offloads_optimizer(const deck::ParallelConfig& parallel) {
  return takes_effect(parallel) &&
         (parallel.offload == Offload::optimizer || parallel.offload == Offload::both);
}

bool offloads_activations(const deck::ParallelConfig& parallel) {
  return takes_effect(parallel) &&
         (parallel.offload == Offload::activations || parallel.offload == Offload::both);
}

std::string offload_note(const deck::ParallelConfig& parallel) {
  if (parallel.offload == Offload::none) return "";
  if (!takes_effect(parallel))
    return text(name_of(parallel.offload),
                ", which has no effect: this installation's kernels run on the host, whose memory "
                "holds all arrays");
  std::string what;
  if (offloads_optimizer(parallel)) what = "the optimizer's state lies";
  if (offloads_activations(parallel))
    what =
        what.empty() ? "saved activations lie" : "the optimizer's state and saved activations lie";
  return text(name_of(parallel.offload), ": ", what, " in the host's memory");
}

}  // namespace trireme::plan
