// Messages between pipeline stages, with a few send buffers for each channel to another rank.
#include <trireme/train/transfers.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/tensor/region.hpp>

#include <algorithm>

namespace trireme::train {

template <class T>
Transfers<T>::Transfers(grid::Communicator& pipeline, const model::TensorAxis& axis,
                        const layout::StageMap& stages, std::int64_t hidden, const Buffers& buffers)
    : pipeline_(pipeline), axis_(axis), stages_(stages) {
  const auto add = [&](Stage to, Direction direction) {
    if (!is_local(to, direction)) channels_.push_back({to, direction, {}, 0});
  };
  for (const Stage stage : stages.stages_of(pipeline.rank())) {
    if (stage < stages.last_stage()) add(stage + 1, Direction::forward);
    if (stage > 0 && buffers.training) add(stage - 1, Direction::backward);
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
  handed_over_.clear();
  for (int i = 0; i < buffers.handed_over; ++i)
    handed_over_.push_back(arena.take<T>(axis_.rows().extent, hidden));
}

template <class T>
void Transfers<T>::receive(const Exec& exec, Stage to, Direction direction,
                           std::vector<Message>& messages, int buffer) {
  if (is_local(to, direction)) return;
  Message& into = messages.at(static_cast<std::size_t>(buffer));
  into.request = pipeline_.start_receive<T>(
      exec, flat(into.slice), stages_.rank_of(sender_of(to, direction)), tag_of(to, direction));
}

template <class T>
void Transfers<T>::take(const Exec& exec, Stage to, Direction direction,
                        std::vector<Message>& messages, int buffer, View2<T> rows,
                        const char* what) {
  const Region region("take_message");
  const auto at = static_cast<std::size_t>(buffer);
  if (is_local(to, direction))
    return kernels::copy<T>(exec, flat(rows), flat<const T>(handed_over_.at(at)));
  Message& from = messages.at(at);
  pipeline_.wait(from.request, what);
  axis_.gather_slices(exec, rows, from.slice, what);
}

template <class T>
void Transfers<T>::send(const Exec& exec, Stage to, Direction direction, int buffer,
                        View2<T> rows) {
  if (is_local(to, direction))
    return kernels::copy<T>(exec, flat(handed_over_.at(static_cast<std::size_t>(buffer))),
                            flat<const T>(rows));
  const auto channel = std::ranges::find_if(
      channels_, [&](const Channel& c) { return c.to == to && c.direction == direction; });
  check(channel != channels_.end(), "no channel to stage ", to);
  Message& sent = channel->sent[channel->next];
  channel->next = (channel->next + 1) % channel->sent.size();
  pipeline_.wait(sent.request, "an earlier send to the same stage");
  kernels::copy<T>(exec, flat(sent.slice), flat<const T>(axis_.slice_of(rows)));
  sent.request = pipeline_.start_send<T>(exec, flat<const T>(sent.slice), stages_.rank_of(to),
                                         tag_of(to, direction));
}

template <class T>
void Transfers<T>::receive_activation(const Exec& exec, Stage stage, int buffer) {
  receive(exec, stage, Direction::forward, activations_, buffer);
}
template <class T>
void Transfers<T>::take_activation(const Exec& exec, Stage stage, int buffer, View2<T> rows) {
  take(exec, stage, Direction::forward, activations_, buffer, rows, "a stage's input");
}
template <class T>
void Transfers<T>::send_activation(const Exec& exec, Stage stage, int buffer, View2<T> rows) {
  send(exec, stage + 1, Direction::forward, buffer, rows);
}

template <class T>
void Transfers<T>::receive_gradient(const Exec& exec, Stage stage, int buffer) {
  receive(exec, stage, Direction::backward, gradients_, buffer);
}
template <class T>
void Transfers<T>::take_gradient(const Exec& exec, Stage stage, int buffer, View2<T> rows) {
  take(exec, stage, Direction::backward, gradients_, buffer, rows, "a gradient");
}
template <class T>
void Transfers<T>::send_gradient(const Exec& exec, Stage stage, int buffer, View2<T> rows) {
  send(exec, stage - 1, Direction::backward, buffer, rows);
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
