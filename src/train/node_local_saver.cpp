// Local checkpoints in three phases: shards and copies, manifest, completion of each node's folder.
#include <trireme/train/node_local_saver.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>
#include <trireme/base/log.hpp>
#include <trireme/base/text.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/grid/heartbeat.hpp>
#include <trireme/grid/runtime.hpp>

#include <filesystem>
#include <map>
#include <utility>

namespace trireme::train {
namespace {

const std::string node_mark = "node-";
/// The previous checkpoint stays until the newest checkpoint is complete.
constexpr checkpoint::Retention kept_copies{2, 0};

/// Packed names, types and positions of slices, without their data.
std::string outline_of(const std::vector<checkpoint::SliceView>& slices) {
  checkpoint::ShardSummary outline;
  for (const auto& slice : slices)
    outline.slices.push_back(
        {slice.name, slice.dtype, slice.shape, {slice.offset, slice.extent}, 0, {}});
  return pack(outline);
}

std::vector<checkpoint::SliceView> slices_of(const std::string& outline) {
  std::vector<checkpoint::SliceView> slices;
  for (const auto& slice : checkpoint::parse_summary(outline).slices)
    slices.push_back({slice.name, slice.dtype, slice.shape, slice.slab.offset, slice.slab.extent});
  return slices;
}

/// Rank i mod n of the partner node, which has n ranks, receives the share of a node's rank i.
Rank receiver(const std::vector<grid::Node>& nodes, std::size_t node, std::size_t index) {
  const auto& ranks = nodes[grid::partner_of(node, nodes.size())].ranks;
  return ranks[index % ranks.size()];
}

}  // namespace

NodeLocalSaver::NodeLocalSaver(const deck::CheckpointConfig& config, grid::Communicator& world,
                               Engine& engine)
    : config_(config),
      world_(world),
      engine_(engine),
      partners_(world.split(0, world.rank(), "partners")),
      nodes_(grid::nodes(world)),
      node_(grid::node_of(nodes_, world.rank())) {
  const auto share = engine_.share();
  share_bytes_ = world_.all_gather(copy_bytes(share), "bytes of checkpoints");
  memory_ = std::make_unique<CopyMemory>(copy_bytes(share));
  find_partners();
  exchange_outlines(share);
}

NodeLocalSaver::~NodeLocalSaver() {
  if (part_.valid() && config_.asynchronous) part_.wait();
  try {
    for (grid::Request& message : messages_) partners_->wait(message, "copies of shards");
  } catch (const std::exception&) {  // another error ends the job
  }
}

void NodeLocalSaver::find_partners() {
  if (nodes_.size() == 1) return;
  for (std::size_t node = 0; node < nodes_.size(); ++node)
    for (std::size_t i = 0; i < nodes_[node].ranks.size(); ++i)
      if (receiver(nodes_, node, i) == world_.rank())
        received_.push_back({nodes_[node].ranks[i], {}, nullptr});
}

Rank NodeLocalSaver::own_receiver() const {
  const auto& ranks = nodes_[node_].ranks;
  const auto index = std::ranges::find(ranks, world_.rank()) - ranks.begin();
  return receiver(nodes_, node_, static_cast<std::size_t>(index));
}

/// Tells the receiver which slices a share holds, and allocates memory for received shares.
void NodeLocalSaver::exchange_outlines(const std::vector<checkpoint::SliceView>& share) {
  if (nodes_.size() == 1) return;
  const std::string mine = outline_of(share);
  const auto sizes = world_.all_gather(std::ssize(mine), "outlines of shards");
  std::vector<std::string> outlines;
  for (const Received& from : received_)
    outlines.emplace_back(static_cast<std::size_t>(sizes[static_cast<std::size_t>(from.rank)]),
                          '\0');
  messages_.push_back(partners_->start_send(std::as_bytes(std::span(mine)), own_receiver(), 0));
  for (std::size_t i = 0; i < received_.size(); ++i)
    messages_.push_back(partners_->start_receive(std::as_writable_bytes(std::span(outlines[i])),
                                                 received_[i].rank, 0));
  for (grid::Request& message : messages_) partners_->wait(message, "outlines of shards");
  messages_.clear();
  for (std::size_t i = 0; i < received_.size(); ++i) {
    const auto slices = slices_of(outlines[i]);
    received_[i].memory = std::make_unique<CopyMemory>(copy_bytes(slices));
    received_[i].slices = received_[i].memory->place(slices);
  }
}

void NodeLocalSaver::begin(const checkpoint::Attempt& attempt) {
  const auto parts = unpack_texts(world_.broadcast(pack_texts({attempt.run, text(attempt.number)}),
                                                   0, "the run's local checkpoints"));
  attempt_ = {parts.at(0), std::stoll(parts.at(1))};
  const std::string directory = checkpoint::local_directory(config_.local, nodes_[node_].name);
  folder_ = directory + "/" + checkpoint::local_folder(attempt_);
  expect_own_folder();
  if (leads()) checkpoint::remove_attempts(directory, attempt_.run, attempt_.number);
  if (nodes_.size() == 1)
    say("local checkpoints in ", directory,
        " have no copy on another node, because the job has only one node; if that node fails, the "
        "run continues from ",
        config_.directory);
}

/// UsageError if nodes share the folder: they would remove each other's files. Collective.
void NodeLocalSaver::expect_own_folder() {
  std::string other;
  if (leads()) {
    std::error_code ignored;
    std::filesystem::create_directories(folder_ + "/" + node_mark + nodes_[node_].name, ignored);
  }
  world_.barrier("folders of local checkpoints");
  if (leads())
    for (const auto& entry : readable_entries_of(folder_))
      if (const std::string name = entry.path().filename().string();
          name.starts_with(node_mark) && name != node_mark + nodes_[node_].name)
        other = name.substr(node_mark.size());
  grid::together(world_, [&] {
    check_usage(other.empty(), "[checkpoint] local = \"", config_.local,
                "\" is the same folder on ", nodes_[node_].name, " and ", other,
                "; choose a disk of each node, or put %node% into the path");
  });
}

void NodeLocalSaver::save(const checkpoint::RunState& state) {
  finish();
  grid::Heartbeat::publish({"checkpoint", state.step});
  began_ = Clock::now();
  state_ = state;
  phase_ = Phase::shards;
  copies_begun_ = false;
  written_.clear();
  error_.clear();
  auto mine = memory_->copy(engine_.share());
  exchange();
  write({{world_.rank(), std::move(mine)}});
  if (!config_.asynchronous) finish();
}

void NodeLocalSaver::exchange() {
  if (nodes_.size() == 1) return;
  if (memory_->bytes() > 0)
    messages_.push_back(partners_->start_send(memory_->content(), own_receiver(), 0));
  for (const Received& from : received_)
    if (from.memory->bytes() > 0)
      messages_.push_back(partners_->start_receive(from.memory->content(), from.rank, 0));
}

bool NodeLocalSaver::exchanged() {
  bool all = true;
  for (grid::Request& message : messages_)
    if (message.active()) all = partners_->done(message) && all;
  if (all) messages_.clear();
  return all;
}

/// Starts writing shards to this node's folder. Every rank creates the folder if it is missing.
void NodeLocalSaver::write(std::vector<Shard> shards) {
  part_ = start_part(
      config_.asynchronous, [folder = folder_, step = state_.step,
                             in_background = config_.asynchronous, shards = std::move(shards)] {
        const std::string partial = checkpoint::partial_folder(folder, step);
        std::filesystem::create_directories(partial);
        std::vector<std::string> summaries;
        const auto progress = [&] {
          if (!in_background) grid::Heartbeat::publish({"checkpoint", step});
        };
        for (const Shard& shard : shards)
          if (copy_bytes(shard.slices) > 0)
            summaries.push_back(pack(checkpoint::write_shard(
                partial, shard.rank, shard.slices, progress,
                in_background ? checkpoint::Cache::bypassed : checkpoint::Cache::used)));
        return pack_texts(summaries);
      });
}

/// Takes the result of this rank's part of the phase, if the part has ended.
void NodeLocalSaver::collect() {
  if (!part_.valid() || part_.wait_for(Clock::duration::zero()) == std::future_status::timeout)
    return;
  try {
    const std::string result = part_.get();
    if (phase_ == Phase::manifest)
      manifest_ = result;
    else
      for (std::string& summary : unpack_texts(result)) written_.push_back(std::move(summary));
  } catch (const std::exception& error) {
    error_ = error.what();
  }
}

std::int64_t NodeLocalSaver::unfinished() {
  if (phase_ == Phase::none) return 0;
  collect();
  if (phase_ == Phase::shards && !copies_begun_ && !part_.valid() && exchanged()) {
    copies_begun_ = true;
    std::vector<Shard> shards;
    for (const Received& from : received_) shards.push_back({from.rank, from.slices});
    if (!shards.empty()) write(std::move(shards));
  }
  return part_.valid() || (phase_ == Phase::shards && !copies_begun_) ? 1 : 0;
}

void NodeLocalSaver::advance(std::int64_t of_all) {
  if (phase_ == Phase::none || of_all != 0) return;
  switch (phase_) {
    case Phase::none:
      break;
    case Phase::shards:
      make_manifest();  // then a short wait: most manifests take less time than a step
      if (part_.valid()) part_.wait_for(look_again);
      advance(world_.all_reduce<std::int64_t>(unfinished(), grid::Reduction::maximum,
                                              "manifest of a local checkpoint"));
      break;
    case Phase::manifest:
      complete(world_.broadcast(manifest_, 0, "manifest of a local checkpoint"));
      break;
    case Phase::completion:
      report();
      break;
  }
}

void NodeLocalSaver::make_manifest() {
  std::vector<std::string> mine{error_};
  mine.insert(mine.end(), written_.begin(), written_.end());
  const auto reports = world_.gather(pack_texts(mine), 0, "shards of a local checkpoint");
  error_.clear();
  manifest_.clear();
  phase_ = Phase::manifest;
  if (world_.rank() > 0) return;
  std::vector<std::string> errors;
  for (const std::string& report : reports) errors.push_back(unpack_texts(report).at(0));
  warn_about(errors);
  part_ = start_part(config_.asynchronous, [this, reports] { return manifest_of(reports); });
}

/// Manifest of the shards of all ranks; "" if a shard and its copy are missing.
std::string NodeLocalSaver::manifest_of(const std::vector<std::string>& reports) {
  std::map<std::string, checkpoint::ShardSummary> summaries;  // by file; shards precede copies
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const auto report = unpack_texts(reports[rank]);
    for (std::size_t i = 1; i < report.size(); ++i) {
      checkpoint::ShardSummary summary = checkpoint::parse_summary(report[i]);
      const std::string file = summary.file;
      if (file != checkpoint::shard_name(static_cast<int>(rank)) && summaries.contains(file))
        continue;
      summaries[file] = std::move(summary);
    }
  }
  std::vector<checkpoint::ShardSummary> shards;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const auto found = summaries.find(checkpoint::shard_name(static_cast<int>(rank)));
    if (found != summaries.end())
      shards.push_back(std::move(found->second));
    else if (share_bytes_[rank] > 0)
      return "";
  }
  return to_json(checkpoint::manifest_of(state_, shards));
}

void NodeLocalSaver::complete(const std::string& manifest) {
  phase_ = Phase::completion;
  manifest_ = manifest;
  if (!leads()) return;
  if (manifest.empty()) {
    checkpoint::abandon_part(folder_, state_.step);
    return;
  }
  part_ = start_part(config_.asynchronous,
                     [manifest, folder = folder_, step = state_.step, files = files_of(state_)] {
                       checkpoint::commit_part(folder, step, manifest, files, kept_copies);
                       return std::string();
                     });
}

void NodeLocalSaver::report() {
  phase_ = Phase::none;
  warn_about(world_.gather(error_, 0, "completion of a local checkpoint"));
  warned_ = std::exchange(failing_, {});
  if (manifest_.empty() && world_.rank() == 0)
    log::warn(text("local checkpoint of step ", state_.step,
                   " is not complete and was removed; the run continues"));
  if (manifest_.empty() || std::exchange(reported_, true)) return;
  say("local checkpoint of step ", state_.step, " on ", nodes_.size(),
      nodes_.size() == 1 ? " node (" : " nodes, each with the copies of another node (",
      fixed(seconds(Clock::now() - began_), 1), " s)");
}

/// On the first rank, warns about each node that fails and did not fail in the previous checkpoint.
void NodeLocalSaver::warn_about(const std::vector<std::string>& errors) {
  if (world_.rank() > 0) return;
  for (const grid::Node& node : nodes_) {
    std::string first;
    for (const Rank rank : node.ranks)
      if (first.empty()) first = errors[static_cast<std::size_t>(rank)];
    if (first.empty() || !failing_.insert(node.name).second || warned_.contains(node.name))
      continue;
    log::warn(text("local checkpoint of step ", state_.step, " on ", node.name, ": ", first,
                   "; the run continues"));
  }
}

void NodeLocalSaver::finish() {
  while (phase_ != Phase::none) {
    wait_for_own_part();
    advance(world_.all_reduce<std::int64_t>(unfinished(), grid::Reduction::maximum,
                                            "agreement on a local checkpoint"));
  }
}

void NodeLocalSaver::wait_for_own_part() {
  while (part_.valid() && part_.wait_for(look_again) == std::future_status::timeout)
    grid::Heartbeat::publish({"checkpoint", state_.step});
  for (grid::Request& message : messages_)
    if (message.active()) partners_->wait(message, "copies of shards");
}

void NodeLocalSaver::remove() {
  finish();
  world_.barrier("local checkpoints are superfluous");
  if (leads())
    checkpoint::remove_attempts(checkpoint::local_directory(config_.local, nodes_[node_].name),
                                attempt_.run, std::nullopt);
}

}  // namespace trireme::train
