// Functions that the sections of trireme bench share: time of the slowest rank, an engine with the
// deck's model, a temporary folder in the checkpoint directory, and this rank's shard of the model.
#include <trireme/architecture/ends.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/clock.hpp>
#include <trireme/base/narrow.hpp>
#include <trireme/commands/bench/bench.hpp>
#include <trireme/plan/program.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace trireme::commands {
namespace {

namespace fs = std::filesystem;

constexpr const char* folder_name = "bench.temporary";  // leftovers of a killed bench are removed
constexpr Bytes beside_bytes = 64 << 20;                // index, manifest and overhead of HDF5
constexpr std::int64_t copies = 3;                      // weights and two moments

}  // namespace

Seconds slowest_seconds(grid::Runtime& runtime, const std::function<void()>& work) {
  runtime.world().barrier("the beginning of a measurement");
  const auto begin = Clock::now();
  work();
  return runtime.world().all_reduce<double>(seconds_since(begin), grid::Reduction::maximum,
                                            "the slowest rank");
}

double median(std::vector<double> values) {
  check(!values.empty(), "median of an empty list");
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Bytes room_for_checkpoints(const Session& session) {
  return 2 * copies * session.architecture.parameters() *
             size_of(master_type(session.config().precision.compute)) +
         beside_bytes;
}

std::unique_ptr<train::Engine> bench_engine(const BenchSetting& setting,
                                            schedule::Program& program) {
  const Session& session = setting.session;
  setting.runtime.together(
      [&] { program = plan::step_program(session.config(), session.machine); });
  auto engine = train::make_engine(session.config(), session.architecture, *session.grid,
                                   session.machine, {&program, 1}, train::Mode::train);
  engine->initialise();
  return engine;
}

BenchFolder::BenchFolder(const BenchSetting& setting, Bytes bytes) {
  const deck::Deck& deck = setting.session.deck;
  const std::string& directory = deck.config.checkpoint.directory;
  path_ = directory + "/" + folder_name;
  try {
    setting.runtime.together([&] {
      if (setting.runtime.rank() != 0) return;
      std::error_code error;
      fs::remove_all(path_, error);
      for (fs::path p = path_; !p.empty() && !fs::exists(p, error); p = p.parent_path())
        made_.push_back(p.string());
      fs::create_directories(path_, error);
      if (!error && ::access(path_.c_str(), W_OK | X_OK) != 0)
        error = std::error_code(errno, std::generic_category());
      check_usage(!error, deck.cite("checkpoint", "directory"), ": cannot write there (",
                  error.message(), "); choose a folder that can be written");
      const auto room = fs::space(path_, error).available;
      check(error || room > static_cast<std::uintmax_t>(bytes),
            deck.cite("checkpoint", "directory"), ": this measurement needs ", human_bytes(bytes),
            ", but only ", human_bytes(static_cast<std::int64_t>(room)),
            " are free; choose another folder with checkpoint.directory=... or a smaller model");
    });
  } catch (...) {
    remove();
    throw;
  }
}

BenchFolder::~BenchFolder() {
  remove();
}

void BenchFolder::remove() noexcept {
  std::error_code ignored;
  if (made_.empty()) return;
  fs::remove_all(path_, ignored);
  for (const auto& folder : made_)
    fs::remove(folder, ignored);  // fails for folders that are not empty
}

BenchShard shard_of(const BenchSetting& setting) {
  const Session& session = setting.session;
  const deck::Config& config = session.config();
  const deck::ParallelConfig& p = config.parallel;
  const layout::Coordinates at = session.grid->coordinates();
  BenchShard out;
  out.shard = architecture::make_shard(session.architecture, p, at);
  const architecture::Shard& shard = out.shard;
  setting.runtime.together([&] {
    const plan::Machine& machine = session.machine;
    const auto needs = plan::training_needs(plan::step_programs(config, machine));
    out.split_backward = needs[static_cast<std::size_t>(at[Axis::pipeline])].split_backward;
    out.sizes = plan::typed_sizes(config, shard, machine);
    out.kernels =
        plan::block_kernels(config, session.architecture, shard, out.split_backward, machine);
    out.end_kernels = plan::end_kernels(config, session.architecture);
  });
  for (const Stage stage : shard.stages)
    out.layers += shard.stage_layers[static_cast<std::size_t>(stage)].extent;
  out.micros = config.micro_batches();
  for (const auto& array : architecture::rank_arrays(session.architecture, shard))
    out.parameters += array.frozen ? 0 : array.elements();
  const std::int64_t parts = p.divides_state() ? p.shard_ranks() : 1;
  out.states = (out.parameters + parts - 1) / parts;
  out.has_embedding = shard.has_embedding();
  out.has_head = shard.has_head();
  out.logits_again = architecture::computes_again(architecture::head_gradient(p));
  return out;
}

}  // namespace trireme::commands
