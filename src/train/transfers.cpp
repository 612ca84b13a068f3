// Messages between pipeline stages, with a few send buffers for each channel to another rank.
#include <trireme/train/transfers.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/tensor/region.hpp>

#include <algorithm>
#include <utility>

namespace trireme::train {

template <class T>
Transfers<T>::Transfers(grid::Communicator& pipeline, const model::TensorAxis& axis,
                        const layout::StageMap& stages, const architecture::RankSizes& sizes,
                        const Buffers& buffers)
    : pipeline_(pipeline), axis_(axis), stages_(stages), sizes_(sizes) {
  const auto add = [&](Stage to, Direction direction) {
    if (!is_local(to, direction)) channels_.push_back({to, direction, {}, 0});
  };
  for (const Stage stage : stages.stages_of(pipeline.rank())) {
    if (stage < stages.last_stage()) add(stage + 1, Direction::forward);
    if (stage > 0 && buffers.training) add(stage - 1, Direction::backward);
  }
  Arena plan;
  take_memory(plan, buffers);
  memory_ = Arena("transfer buffers", plan.used());
  take_memory(memory_, buffers);
}

template <class T>
auto Transfers<T>::take_message(Arena& arena, std::int64_t tokens, std::int64_t source) const
    -> Message {
  constexpr Bytes element = sizeof(T), sum = sizeof(Accumulate<T>);
  const std::int64_t tables = architecture::table_bytes(sizes_, element, sum) / element;
  const std::int64_t of_tokens = tokens * sizes_.hidden, of_source = source * sizes_.source.hidden;
  Message m;
  m.memory = arena.take<T>((1 + sizes_.modules) * of_tokens + of_source + tables);
  std::int64_t begin = 0;
  const auto next = [&](std::int64_t elements) {
    return part(m.memory, std::exchange(begin, begin + elements), elements);
  };
  m.slices.tokens = trireme::matrix(next(of_tokens), tokens, sizes_.hidden);
  m.slices.source = trireme::matrix(next(of_source), source, sizes_.source.hidden);
  m.slices.tables = next(tables);
  for (std::int64_t module = 0; module < sizes_.modules; ++module)
    m.slices.modules.push_back(trireme::matrix(next(of_tokens), tokens, sizes_.hidden));
  return m;
}

template <class T>
void Transfers<T>::take_memory(Arena& arena, const Buffers& buffers) {
  const auto cut_slices = [&](std::vector<Message>& list, int count) {
    list.clear();
    for (int i = 0; i < count; ++i)
      list.push_back(take_message(arena, sizes_.slice, sizes_.source.slice));
  };
  cut_slices(activations_, buffers.activations);
  cut_slices(gradients_, buffers.gradients);
  for (Channel& channel : channels_) cut_slices(channel.sent, buffers.sends);
  handed_over_.clear();
  for (int i = 0; i < buffers.handed_over; ++i)
    handed_over_.push_back(take_message(arena, sizes_.rows, sizes_.source.rows));
}

template <class T>
void Transfers<T>::copy(const Exec& exec, const Rows& to, const Rows& from) {
  kernels::copy<T>(exec, flat(to.tokens), flat<const T>(from.tokens));
  if (to.source.size() > 0) kernels::copy<T>(exec, flat(to.source), flat<const T>(from.source));
  if (to.tables.size() > 0) kernels::copy<T>(exec, to.tables, from.tables);
  for (std::size_t module = 0; module < to.modules.size(); ++module)
    kernels::copy<T>(exec, flat(to.modules[module]), flat<const T>(from.modules[module]));
}

template <class T>
void Transfers<T>::receive(const Exec& exec, Stage to, Direction direction,
                           std::vector<Message>& messages, int buffer) {
  if (is_local(to, direction)) return;
  Message& into = messages.at(static_cast<std::size_t>(buffer));
  into.request = pipeline_.start_receive<T>(
      exec, into.memory, stages_.rank_of(sender_of(to, direction)), tag_of(to, direction));
}

template <class T>
void Transfers<T>::take(const Exec& exec, Stage to, Direction direction,
                        std::vector<Message>& messages, int buffer, const Rows& rows,
                        const char* what) {
  const Region region("take_message");
  const auto at = static_cast<std::size_t>(buffer);
  if (is_local(to, direction)) return copy(exec, rows, handed_over_.at(at).slices);
  Message& from = messages.at(at);
  pipeline_.wait(from.request, what);
  axis_.gather_slices(exec, rows.tokens, from.slices.tokens, what);
  if (rows.source.size() > 0)
    axis_.of(architecture::Stream::source)
        .gather_slices(exec, rows.source, from.slices.source, what);
  if (rows.tables.size() > 0) kernels::copy<T>(exec, rows.tables, from.slices.tables);
  for (std::size_t module = 0; module < rows.modules.size(); ++module)
    axis_.gather_slices(exec, rows.modules[module], from.slices.modules[module], what);
}

template <class T>
void Transfers<T>::send(const Exec& exec, Stage to, Direction direction, int buffer,
                        const Rows& rows) {
  if (is_local(to, direction))
    return copy(exec, handed_over_.at(static_cast<std::size_t>(buffer)).slices, rows);
  const auto channel = std::ranges::find_if(
      channels_, [&](const Channel& c) { return c.to == to && c.direction == direction; });
  check(channel != channels_.end(), "no channel to stage ", to);
  Message& sent = channel->sent[channel->next];
  channel->next = (channel->next + 1) % channel->sent.size();
  pipeline_.wait(sent.request, "an earlier send to the same stage");
  Rows mine = rows;
  mine.tokens = axis_.slice_of(rows.tokens);
  if (rows.source.size() > 0)
    mine.source = axis_.of(architecture::Stream::source).slice_of(rows.source);
  for (View2<T>& module : mine.modules) module = axis_.slice_of(module);
  copy(exec, sent.slices, mine);
  sent.request = pipeline_.start_send<T>(exec, View1<const T>(sent.memory), stages_.rank_of(to),
                                         tag_of(to, direction));
}

template <class T>
void Transfers<T>::receive_activation(const Exec& exec, Stage stage, int buffer) {
  receive(exec, stage, Direction::forward, activations_, buffer);
}
template <class T>
void Transfers<T>::take_activation(const Exec& exec, Stage stage, int buffer, const Rows& rows) {
  take(exec, stage, Direction::forward, activations_, buffer, rows, "a stage's input");
}
template <class T>
void Transfers<T>::send_activation(const Exec& exec, Stage stage, int buffer, const Rows& rows) {
  send(exec, stage + 1, Direction::forward, buffer, rows);
}

template <class T>
void Transfers<T>::receive_gradient(const Exec& exec, Stage stage, int buffer) {
  receive(exec, stage, Direction::backward, gradients_, buffer);
}
template <class T>
void Transfers<T>::take_gradient(const Exec& exec, Stage stage, int buffer, const Rows& rows) {
  take(exec, stage, Direction::backward, gradients_, buffer, rows, "a gradient");
}
template <class T>
void Transfers<T>::send_gradient(const Exec& exec, Stage stage, int buffer, const Rows& rows) {
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
