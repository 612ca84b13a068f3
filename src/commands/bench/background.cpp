// trireme bench, section background: the cost of a background checkpoint. Each round times steps
// alone, a foreground checkpoint, and a background checkpoint with the steps until it is complete.
#include <trireme/architecture/saved.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/bench/bench.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/data/samples.hpp>
#include <trireme/train/saver.hpp>

#include <algorithm>
#include <array>
#include <optional>

namespace trireme::commands {
namespace {

/// Training steps, each followed by the ranks' agreement on the progress of checkpoints, as in the
/// trainer.
class Steps {
 public:
  Steps(const BenchSetting& setting, train::Engine& engine, const data::Samples& samples)
      : setting_(setting), engine_(engine), samples_(samples) {}

  Seconds run(train::Saver& saver) {
    return slowest_seconds(setting_.runtime, [&] {
      engine_.train_step(++step_, samples_);
      engine_.result();
      const train::Saver::Progress mine = saver.progress();
      std::array<std::int64_t, 2> of_all{mine.unfinished, mine.failed};
      setting_.runtime.world().all_reduce(std::span<std::int64_t>(of_all), grid::Reduction::maximum,
                                          "agreement at a step's end");
      saver.advance({of_all[0], of_all[1]});
    });
  }
  std::int64_t number() const { return step_; }

 private:
  const BenchSetting& setting_;
  train::Engine& engine_;
  const data::Samples& samples_;
  std::int64_t step_ = 0;
};

/// Seconds, one entry per round; `step` has three entries per round.
struct Found {
  std::vector<double> step;
  std::vector<double> write;       ///< a foreground checkpoint
  std::vector<double> held_up;     ///< the copy of a background checkpoint
  std::vector<double> background;  ///< the copy and the steps until the checkpoint is complete
  std::vector<double> slowed;      ///< extra time of the steps until the checkpoint is complete

  std::vector<double> shares(bool with_slowed) const {
    std::vector<double> out;
    for (std::size_t i = 0; i < write.size(); ++i)
      out.push_back((held_up[i] + (with_slowed ? slowed[i] : 0)) / write[i]);
    return out;
  }
};

void measure_round(const BenchSetting& setting, Steps& steps, train::Saver& saver, Found& found) {
  const auto save = [&](bool in_background) {
    return slowest_seconds(setting.runtime, [&] {
      saver.save({steps.number(), 0, ""}, in_background);
    });
  };
  for (int i = 0; i < 3; ++i) found.step.push_back(steps.run(saver));
  const std::vector<double> alone(found.step.end() - 3, found.step.end());
  found.write.push_back(save(false));
  steps.run(saver);
  found.held_up.push_back(save(true));
  double sum = 0;
  double longer = 0;
  while (saver.under_way()) {
    const Seconds taken = steps.run(saver);
    sum += taken;
    longer += taken - median(alone);
  }
  found.background.push_back(found.held_up.back() + sum);
  found.slowed.push_back(longer);
}

}  // namespace

BenchReport bench_background(const BenchSetting& setting) {
  Session& session = setting.session;
  std::optional<data::Samples> samples;
  setting.runtime.together([&] {
    if (session.training.files.empty()) session.training = open_training_data(session.deck);
    samples.emplace(session.training.parts(), data::SampleForm(session.config().model),
                    static_cast<std::uint64_t>(session.config().run.seed));
  });
  const BenchFolder folder(setting, room_for_checkpoints(session));
  schedule::Program program;
  const auto engine = bench_engine(setting, program);
  Bytes copy = 0;
  for (const auto& slice : engine->share()) copy += architecture::saved_bytes(slice.bytes());
  deck::CheckpointConfig config = session.config().checkpoint;
  config.directory = folder.path();
  config.keep = 1;
  config.keep_every = 0;

  Found found;
  const bool spoke = log::speaking();
  log::set_speaking(false);  // the saver logs every checkpoint
  {
    train::Saver saver(config, setting.runtime.world(), *engine, copy);
    Steps steps(setting, *engine, *samples);
    steps.run(saver);
    for (std::int64_t round = 0; round < setting.rounds; ++round)
      measure_round(setting, steps, saver, found);
  }
  log::set_speaking(spoke);
  const std::string name = "background";
  return {
      {name, "step_seconds", median(found.step), "s", "one step without a checkpoint in progress"},
      {name, "write_seconds", median(found.write), "s", "a checkpoint in the foreground"},
      {name, "held_up_seconds", median(found.held_up), "s", "copy to host memory, the run waits"},
      {name, "held_up_share", median(found.shares(false)), "1", "held_up / write"},
      {name, "seconds", median(found.background), "s", "until complete, at the end of a step"},
      {name, "slowed_seconds", median(found.slowed), "s", "extra time of the steps meanwhile"},
      {name, "delay_share", median(found.shares(true)), "1", "(held_up + slowed) / write"},
  };
}

}  // namespace trireme::commands
