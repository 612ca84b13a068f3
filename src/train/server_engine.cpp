// A server's part of training steps: order of events, weights, gradients and updates.
#include <trireme/train/server_engine.hpp>

#include <trireme/architecture/server_ranges.hpp>
#include <trireme/base/alignment.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/grid/heartbeat.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/optim/learning_rate.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/fence.hpp>
#include <trireme/tensor/region.hpp>
#include <trireme/train/engine_parts.hpp>
#include <trireme/train/load.hpp>
#include <trireme/train/precision.hpp>
#include <trireme/train/progress.hpp>
#include <trireme/train/slices.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <span>

namespace trireme::train {
namespace {

static_assert(architecture::server_status_bytes == kernels::status_size * 8);

model::Replicas replicas_of(const deck::ParallelConfig& parallel, const grid::Communicator& group) {
  return {architecture::server_division(parallel), group.rank(), group.size(),
          parallel.bucket_bytes, parallel.sequence_parallel};
}

}  // namespace

template <class P>
ServerEngine<P>::ServerEngine(const deck::Config& config,
                              const architecture::Architecture& architecture, grid::Grid& grid)
    : config_(config),
      architecture_(architecture),
      grid_(grid),
      group_(grid.part_of_data_axis(static_cast<int>(config.parallel.data))),
      batches_(config.batch),
      handle_(kernel_choice(config.precision)),
      parameters_(architecture,
                  architecture::make_shard(architecture, config.parallel, grid.coordinates()), true,
                  replicas_of(config.parallel, group_)),
      order_(static_cast<int>(config.parallel.data), config.parallel.staleness,
             config.parallel.updates) {
  const architecture::BucketCut cut =
      architecture::server_cut(config.parallel, architecture, parameters_.shard(),
                               parameters_.rank_arrays(), parameters_.placement(), sizeof(G));
  auto buckets = architecture::gradient_buckets(cut);
  const bool divided = group_.size() > 1;
  const auto& arrays = parameters_.rank_arrays();
  const architecture::Placement& placement = parameters_.placement();
  auto state = divided ? architecture::owned_state(arrays, placement, buckets, group_.rank())
                       : architecture::whole_state(arrays, placement);
  const std::int64_t capacity = divided ? architecture::most_state_elements(cut) : state.elements;
  typename optim::Optimizer<P>::Options options;
  options.loss_scaling = loss_scaling(config.precision);
  options.seed = static_cast<std::uint64_t>(config.run.seed);
  optimizer_.emplace(config.optimizer, architecture, parameters_, grid.model(), group_,
                     std::move(state), capacity, options);
  messages_.emplace(config.parallel, grid, std::move(buckets), placement.trained);
  find_parts();
  const std::int64_t elements = architecture::received_elements(cut);
  const std::int64_t memories = architecture::received_gradients(config.parallel);
  received_ = Arena("received gradients",
                    memories * aligned(elements * static_cast<std::int64_t>(sizeof(G))));
  for (std::int64_t i = 0; i < memories; ++i)
    arrivals_.push_back({received_.take<G>(elements), {}});
  if (messages_->is_leader()) {
    const auto workers = static_cast<std::size_t>(messages_->workers());
    listening_.emplace();
    listening_->heard.resize(workers);
    listening_->requests.resize(workers);
    listening_->paused.resize(workers);
  }
}

template <class P>
void ServerEngine<P>::find_parts() {
  const auto server = static_cast<std::size_t>(group_.rank());
  std::int64_t received = 0;
  for (std::size_t i = 0; i < messages_->buckets().size(); ++i) {
    const auto& bounds = messages_->buckets()[i].bounds;
    if (bounds[server] == bounds[server + 1]) continue;
    parts_.push_back({i, bounds[server], bounds[server + 1], received});
    received += aligned_elements(parts_.back().size());
  }
}

template <class P>
void ServerEngine<P>::begin_after(std::int64_t step) {
  step_ = step;
  order_.reset(step);
  begun_ = false;
  was_last_ = true;
  record_.reset();
}

template <class P>
void ServerEngine<P>::publish(const char* what, std::int64_t step) const {
  grid::Heartbeat::publish({text("server ", messages_->number(), ", ", what), step});
}

template <class P>
void ServerEngine<P>::overlapping_step(std::int64_t step, const data::Samples& /*samples*/,
                                       bool next_follows) {
  const Region region("step");
  if (!begun_ && messages_->is_leader() && config_.parallel.records_events()) {
    if (!config_.parallel.replay.empty()) order_.replay(read_record(config_.parallel, step - 1));
    record_.emplace(config_, step - 1);
  }
  begun_ = true;
  step_ = step;
  publish("service", step);
  if (messages_->is_leader())
    lead(step, !next_follows);
  else
    follow(step);
  finish_sends();
  was_last_ = !next_follows;
}

template <class P>
void ServerEngine<P>::lead(std::int64_t step, bool last) {
  const std::int64_t end = last ? step : std::numeric_limits<std::int64_t>::max();
  if (was_last_) listening_->paused.assign(listening_->paused.size(), false);
  while (order_.complete() < step) {
    if (const auto event = order_.next(end)) {
      tell(*event);
      if (record_) record_->write(*event, order_.lacks(*event));
      execute(*event);
      continue;
    }
    listen();
    hear();
  }
  for (grid::Request& request : telling_) messages_->events.wait(request, "events to the servers");
  telling_.clear();
  told_.clear();
}

/// Posts receives of the next announcements of workers that are not paused.
template <class P>
void ServerEngine<P>::listen() {
  for (std::size_t w = 0; w < listening_->requests.size(); ++w)
    if (!listening_->paused[w] && !listening_->requests[w].active())
      listening_->requests[w] = messages_->events.start_receive(
          std::as_writable_bytes(std::span(&listening_->heard[w], 1)),
          messages_->first_rank_of(static_cast<int>(w)), ServerMessages::announcements);
}

template <class P>
void ServerEngine<P>::hear() {
  const std::size_t w =
      messages_->events.wait_for_one(listening_->requests, "messages of the workers");
  const ServerMessages::Announcement& heard = listening_->heard[w];
  if (heard.pushes == 0)
    order_.asks(static_cast<int>(w), heard.step);
  else
    order_.pushed(static_cast<int>(w), heard.step);
  listening_->paused[w] = heard.last != 0;
}

/// Sends an event to the other ranks of servers.
template <class P>
void ServerEngine<P>::tell(const ServerEvent& event) {
  if (messages_->server_ranks().empty()) return;
  auto message = std::make_unique<ServerMessages::Told>(ServerMessages::Told{
      event.kind == ServerEvent::Kind::update ? 1 : 0, event.worker, event.step});
  for (const int rank : messages_->server_ranks())
    telling_.push_back(messages_->events.start_send(std::as_bytes(std::span(*message)), rank,
                                                    ServerMessages::told_events));
  told_.push_back(std::move(message));
}

template <class P>
void ServerEngine<P>::follow(std::int64_t step) {
  const int leader = messages_->first_rank_of(messages_->server_place(0));
  while (order_.complete() < step) {
    ServerMessages::Told told{};
    grid::Request request = messages_->events.start_receive(std::as_writable_bytes(std::span(told)),
                                                            leader, ServerMessages::told_events);
    messages_->events.wait(request, "events of the first server");
    execute({told[0] != 0 ? ServerEvent::Kind::update : ServerEvent::Kind::fetch,
             static_cast<int>(told[1]), told[2]});
  }
}

template <class P>
void ServerEngine<P>::execute(const ServerEvent& event) {
  if (event.kind == ServerEvent::Kind::fetch) {
    receive_gradients(event.worker, event.step);
    send_weights(event.worker);
    order_.apply(event);
    return;
  }
  finish_sends();
  publish("update", event.step);
  order_.apply(event);
  update(event);
  publish("service", step_);
}

template <class P>
typename ServerEngine<P>::Arrival& ServerEngine<P>::arrival(int worker, std::int64_t step) {
  const std::int64_t turn = step % (config_.parallel.staleness + 1);
  return arrivals_.at(static_cast<std::size_t>(turn * messages_->workers() + worker));
}

/// Posts the receives of a worker's gradients of a step.
template <class P>
void ServerEngine<P>::receive_gradients(int worker, std::int64_t step) {
  Arrival& from = arrival(worker, step);
  for (const Part& p : parts_)
    from.requests.push_back(
        messages_->data.start_receive<G>(handle_, part(from.memory, p.received, p.size()), worker,
                                         messages_->gradient_channel(p.bucket)));
}

template <class P>
void ServerEngine<P>::send_weights(int worker) {
  if (messages_->number() == 0)
    sends_.push_back(messages_->data.start_send<double>(handle_, optimizer_->status(), worker,
                                                        ServerMessages::status_channel));
  for (const Part& p : parts_)
    if (messages_->has_weights(p.bucket))
      sends_.push_back(messages_->data.start_send<T>(
          handle_,
          part(parameters_.all_weights(), parameters_.weight_places().own_place(p.begin), p.size()),
          worker, messages_->weight_channel(p.bucket)));
}

template <class P>
void ServerEngine<P>::finish_sends() {
  for (grid::Request& request : sends_) messages_->data.wait(request, "weights to a worker");
  sends_.clear();
}

/// gradient = Σ_w gradient of worker w, in rank order. For an update with one worker's gradient:
/// that gradient times the number of workers.
template <class P>
void ServerEngine<P>::sum_gradients(const ServerEvent& event) {
  const bool all = event.worker < 0;
  const int first = all ? 0 : event.worker;
  const int end = all ? messages_->workers() : event.worker + 1;
  for (int w = first; w < end; ++w) {
    Arrival& from = arrival(w, event.step);
    for (grid::Request& request : from.requests)
      messages_->data.wait(request, "gradients of a worker");
    from.requests.clear();
    for (const Part& p : parts_) {
      const View1<const G> theirs = part(from.memory, p.received, p.size());
      const View1<G> sum = part(parameters_.all_gradients(),
                                parameters_.gradient_places().own_place(p.begin), p.size());
      if (w == first)
        kernels::copy<G>(handle_, sum, theirs);
      else
        kernels::accumulate<G>(handle_, sum, theirs);
      if (!all) kernels::scale<G>(handle_, sum, messages_->workers());
    }
  }
}

/// Sums incomplete gradients of replicated arrays over the tensor ranks, and the gradient of the
/// tied token table over the ranks that hold the table.
template <class P>
void ServerEngine<P>::sum_over_model() {
  grid::Communicator& tensor = grid_.communicator(Axis::tensor);
  const bool cuts_tokens = config_.parallel.sequence_parallel && tensor.size() > 1;
  for (const Stage stage : parameters_.shard().stages)
    for (const bool partial : {false, true}) {
      const auto gradients = parameters_.replicated_gradients(stage, partial);
      if ((partial || cuts_tokens) && gradients.extent(0) > 0)
        tensor.template all_reduce<G>(handle_, gradients, grid::Reduction::sum,
                                      "gradients of replicated arrays");
    }
  optimizer_->combine_tied_gradients(handle_);
  grid::Communicator& embedding = grid_.embedding();
  if (embedding.size() == 1 || !config_.model.tied_embeddings) return;
  const auto& table = parameters_.entry("embedding.token");
  if (table.spec->frozen) return;
  const std::int64_t end = table.offset + table.local.elements();
  for (const auto& own : parameters_.gradient_places().kept(table.offset, end))
    embedding.template all_reduce<G>(
        handle_, part(parameters_.all_gradients(), own.place, own.end - own.begin),
        grid::Reduction::sum, "gradient of the tied token table");
}

template <class P>
void ServerEngine<P>::update(const ServerEvent& event) {
  const Region region("server_update");
  sum_gradients(event);
  sum_over_model();
  optimizer_->find_norm(handle_);
  const double rate =
      optim::learning_rate(config_.optimizer, event.step, batches_.global(event.step));
  optimizer_->step(handle_, order_.updates(), rate);
}

// A server's results, its slices of a checkpoint, and its restart from a checkpoint.
template <class P>
void ServerEngine<P>::initialise() {
  const Region region("initialise");
  parameters_.initialise(handle_, static_cast<std::uint64_t>(config_.run.seed));
  optimizer_->zero_state(handle_);
  optimizer_->copy_masters_from_weights(handle_);
  const double scale = initial_loss_scale(config_.precision);
  optimizer_->set_progress(handle_, {0, 0, scale, 0, 0, scale});
  begin_after(0);
}

/// Servers report the norm and the skipped steps; the loss comes from the workers.
template <class P>
StepResult ServerEngine<P>::result() {
  const Region region("result");
  messages_->data.template broadcast<double>(handle_, optimizer_->status(),
                                             messages_->server_place(0), "status of the servers");
  std::array<double, kernels::status_size> status{};
  copy_to_host<double>(handle_, status, optimizer_->status(),
                       "train/result reads the gradient norm and what was skipped");
  StepResult found;
  found.gradient_norm = status[kernels::status_norm];
  found.skips = skips_from<P>(config_, status, *optimizer_);
  messages_->data.broadcast(std::as_writable_bytes(std::span(&found.loss, 1)), 0,
                            "loss of the workers");
  return found;
}

template <class P>
StepResult ServerEngine<P>::result_of(std::int64_t step) {
  check(step == step_, "step ", step, " is not the last one, ", step_);
  return result();
}

template <class P>
Evaluation ServerEngine<P>::evaluate(const data::Windows& /*file*/, std::int64_t /*windows*/,
                                     const std::vector<std::int32_t>& /*bytes_of_token*/) {
  const Region region("evaluation");
  for (int worker = 0; worker < messages_->workers(); ++worker) send_weights(worker);
  finish_sends();
  Evaluation found;
  found.losses.emplace_back();
  messages_->data.broadcast(std::as_writable_bytes(std::span(&found.losses.front().nats, 1)), 0,
                            "loss of the evaluation");
  return found;
}

template <class P>
std::vector<Score> ServerEngine<P>::score(const data::Requests& /*requests*/) {
  throw Error("servers score no requests");
}

template <class P>
std::vector<std::vector<std::int32_t>> ServerEngine<P>::likeliest(const data::Requests&) {
  throw Error("parameter servers cannot generate texts; leave [run] prompts out");
}

/// A single server writes parts of whole arrays; each of several servers writes its own blocks.
template <class P>
std::vector<checkpoint::SliceView> ServerEngine<P>::share() {
  fence(handle_, "train/share waits for the step");
  const auto& entries = parameters_.entries();
  const auto state = optimizer_->state();
  const bool divided = parameters_.weight_places().has_windows();
  const auto all = architecture::saved_parts(architecture_, parameters_.shard(),
                                             parameters_.rank_arrays(), 1, 0);
  std::vector<checkpoint::SliceView> slices;
  const auto add_state = [&](const auto& array_of) {
    if (divided) {
      for (const auto& block : state)
        if (const auto* array = block.counted ? array_of(block) : nullptr)
          slices.push_back(slice_of(handle_, *array, {0, array->offset, array->extent, 0}));
      return;
    }
    for (const auto& part : all) {
      if (entries[part.local].local.frozen) continue;
      const auto block =
          std::ranges::lower_bound(state, part.local, {}, [](const auto& b) { return b.local; });
      if (const auto* array = array_of(*block)) slices.push_back(slice_of(handle_, *array, part));
    }
  };
  if (divided || optim::Optimizer<P>::has_masters)
    add_state([](const auto& block) { return &block.updated; });
  if (divided)
    for (const auto& block : parameters_.owned_frozen())
      slices.push_back(frozen_slice_of(handle_, block, {0, block.offset, block.extent, 0}));
  else
    for (const auto& part : all) {
      const auto& entry = entries[part.local];
      if (entry.local.frozen)
        slices.push_back(frozen_slice_of(handle_, entry.weight, part));
      else if (!optim::Optimizer<P>::has_masters)
        slices.push_back(slice_of(handle_, entry.weight, part));
    }
  const std::size_t kinds = state.empty() ? 0 : state.front().arrays.size();
  for (std::size_t kind = 0; kind < kinds; ++kind)
    add_state([kind](const auto& block) { return &block.arrays[kind]; });
  const std::size_t narrow = state.empty() ? 0 : state.front().narrow_arrays.size();
  for (std::size_t kind = 0; kind < narrow; ++kind)
    add_state([kind](const auto& block) { return &block.narrow_arrays[kind]; });
  return slices;
}

template <class P>
void ServerEngine<P>::load(const checkpoint::Reader& reader) {
  const Region region("load");
  const std::int64_t step = reader.state().step;
  begin_after(step);
  const bool fresh = lacks_adapters(reader, architecture_);
  load_weights(handle_, reader, architecture_, parameters_,
               static_cast<std::uint64_t>(config_.run.seed));
  const auto state = optimizer_->state();
  if constexpr (optim::Optimizer<P>::has_masters) {
    if (fresh) optimizer_->copy_masters_from_weights(handle_);
    for (const auto& block : state)
      if (!fresh || !parameters_.entries()[block.local].spec->adapter)
        load_array(handle_, reader, block.updated);
  }
  const bool begins = fresh || holds_weights_only(reader);
  if (begins)
    optimizer_->zero_state(handle_);
  else
    for (const auto& block : state) load_state(handle_, reader, block);
  optimizer_->set_progress(handle_, progress_after(config_, reader, begins));
}

template <class P>
std::vector<plan::MemoryRow> ServerEngine<P>::memory() const {
  std::vector<plan::MemoryRow> rows{{"weights", parameters_.weight_bytes()},
                                    {"gradients", parameters_.gradient_bytes()},
                                    {"optimizer state", optimizer_->state_bytes()},
                                    {"received gradients", received_.capacity()}};
  if (const Bytes bytes = handle_.workspace_bytes(); bytes > 0)
    rows.push_back({"kernel workspace", bytes});
  return rows;
}

template <class P>
std::string ServerEngine<P>::description() const {
  const DType type = config_.precision.compute;
  return text(name_of(type), " products by ", handle_.choice().products_description(type));
}

template class ServerEngine<model::Fp32>;
template class ServerEngine<model::Fp64>;
template class ServerEngine<model::MixedBf16>;
template class ServerEngine<model::MixedFp16>;

}  // namespace trireme::train
