// Messages between pipeline stages: receives are posted ahead, and each channel has a few send
// buffers in turn.
#include <trireme/base/check.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/tensor/region.hpp>
#include <trireme/train/transfers.hpp>

#include <algorithm>

namespace trireme::train {
template <class T>
Transfers<T>::Transfers(grid::Communicator& pipeline, const model::TensorAxis& axis,
                        const architecture::Shard& shard, std::int64_t hidden,
                        const Buffers& buffers)
    : pipeline_(pipeline), axis_(axis) {
  for (const Stage stage : shard.stages) {
    if (stage < shard.last_stage()) channels_.push_back({stage + 1, Direction::forward, {}, 0});
    if (stage > 0 && buffers.training) channels_.push_back({stage - 1, Direction::backward, {}, 0});
  }
  Arena plan;
  take_memory(plan, hidden, buffers);
  memory_ = Arena("transfer buffers", plan.used());
  take_memory(memory_, hidden, buffers);
}

template <class T>
void Transfers<T>::take_memory(Arena& arena, std::int64_t hidden, const Buffers& buffers) {
  const auto cut_slices = [&](std::vector<Message>& list, int count) {
    list.clear();
    for (int i = 0; i < count; ++i)
      list.push_back({arena.take<T>(axis_.slice().extent, hidden), {}});
  };
  cut_slices(activations_, buffers.activations);
  cut_slices(gradients_, buffers.gradients);
  for (Channel& channel : channels_) cut_slices(channel.sent, buffers.sends);
}

template <class T>
void Transfers<T>::receive(const Exec& exec, Message& into, int from, int channel) {
  into.request = pipeline_.start_receive<T>(exec, flat(into.slice), from, channel);
}

template <class T>
void Transfers<T>::take(const Exec& exec, Message& from, View2<T> rows, const char* what) {
  const Region region("take_message");
  pipeline_.wait(from.request, what);
  axis_.gather_slices(exec, rows, from.slice, what);
}

template <class T>
void Transfers<T>::send(const Exec& exec, Stage to, Direction direction, View2<T> rows) {
  const auto channel = std::ranges::find_if(
      channels_, [&](const Channel& c) { return c.to == to && c.direction == direction; });
  check(channel != channels_.end(), "no channel to stage ", to);
  Message& sent = channel->sent[channel->next];
  channel->next = (channel->next + 1) % channel->sent.size();
  pipeline_.wait(sent.request, "an earlier send to the same stage");
  kernels::copy<T>(exec, flat(sent.slice), flat<const T>(axis_.slice_of(rows)));
  sent.request = pipeline_.start_send<T>(exec, flat<const T>(sent.slice), rank_of(to),
                                         channel_of(to, direction));
}

template <class T>
void Transfers<T>::receive_activation(const Exec& exec, Stage stage, int buffer) {
  receive(exec, activations_.at(static_cast<std::size_t>(buffer)), rank_of(stage - 1),
          channel_of(stage, Direction::forward));
}
template <class T>
void Transfers<T>::take_activation(const Exec& exec, int buffer, View2<T> rows) {
  take(exec, activations_.at(static_cast<std::size_t>(buffer)), rows, "a stage's input");
}
template <class T>
void Transfers<T>::send_activation(const Exec& exec, Stage stage, View2<T> rows) {
  send(exec, stage + 1, Direction::forward, rows);
}

template <class T>
void Transfers<T>::receive_gradient(const Exec& exec, Stage stage, int buffer) {
  receive(exec, gradients_.at(static_cast<std::size_t>(buffer)), rank_of(stage + 1),
          channel_of(stage, Direction::backward));
}
template <class T>
void Transfers<T>::take_gradient(const Exec& exec, int buffer, View2<T> rows) {
  take(exec, gradients_.at(static_cast<std::size_t>(buffer)), rows, "a gradient");
}
template <class T>
void Transfers<T>::send_gradient(const Exec& exec, Stage stage, View2<T> rows) {
  send(exec, stage - 1, Direction::backward, rows);
}

template <class T>
void Transfers<T>::finish() {
  const Region region("finish_sends");
  for (Channel& channel : channels_)
    for (Message& sent : channel.sent) pipeline_.wait(sent.request, "sends of the step");
}

template class Transfers<float>;
template class Transfers<double>;
template class Transfers<Bf16>;
template class Transfers<Fp16>;

}  // namespace trireme::train
