// Steps of a worker whose weights and optimizer state are on parameter servers.
#include <trireme/grid/heartbeat.hpp>
#include <trireme/tensor/region.hpp>
#include <trireme/train/typed_worker.hpp>

#include <span>

namespace trireme::train {

template <class P>
void TypedWorker<P>::served_step(std::int64_t step, const data::Samples& samples,
                                 bool next_follows) {
  const Region region("step");
  ServerLink<P>& servers = *parts_.servers;
  grid::Heartbeat::publish({text("worker ", servers.messages().number(), ", fetch"), step});
  servers.finish();  // the gradients are about to change
  servers.fetch(handle_, step);
  run(begin_step(step, samples));
  servers.end_step(step, !next_follows);
  remember(step);
}

/// The weights of a served worker lack at least the last step's update.
template <class P>
void TypedWorker<P>::fetch_current() {
  if (parts_.servers) parts_.servers->fetch_current(handle_);
}

template <class P>
void TypedWorker<P>::take_status() {
  if (!parts_.servers) return;
  const ServerMessages& messages = parts_.servers->messages();
  messages.data.template broadcast<double>(handle_, parts_.optimizer->status(),
                                           messages.server_place(0), "status of the servers");
}

template <class P>
void TypedWorker<P>::tell_servers(double& value, const char* what) {
  if (parts_.servers)
    parts_.servers->messages().data.broadcast(std::as_writable_bytes(std::span(&value, 1)), 0,
                                              what);
}

#define TRIREME_INSTANTIATE(P)                                                         \
  template void TypedWorker<P>::served_step(std::int64_t, const data::Samples&, bool); \
  template void TypedWorker<P>::fetch_current();                                       \
  template void TypedWorker<P>::take_status();                                         \
  template void TypedWorker<P>::tell_servers(double&, const char*);
TRIREME_INSTANTIATE(model::Fp32)
TRIREME_INSTANTIATE(model::Fp64)
TRIREME_INSTANTIATE(model::MixedBf16)
TRIREME_INSTANTIATE(model::MixedFp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::train
