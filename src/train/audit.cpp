// Audited steps: each replica's samples are computed by another replica and by itself. If the
// results differ, two more passes find the wrong result. audit_state.cpp audits the state.
#include <trireme/train/audit.hpp>

#include <trireme/grid/heartbeat.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/tensor/region.hpp>

#include <algorithm>

namespace trireme::train {

template <class P>
Audit<P>::Audit(const deck::RunConfig& run, EngineParts<P>& parts, StepActions<P>& actions,
                const kernels::Handle& handle, grid::Grid& grid)
    : run_(run),
      parts_(parts),
      actions_(actions),
      handle_(handle),
      grid_(grid),
      list_(handle),
      state_(run, parts, handle, grid, list_) {}

template <class P>
Audit<P>::~Audit() = default;

template <class P>
void Audit<P>::step(std::int64_t step, const Run& run) {
  const Region region("audit");
  step_ = step;
  run_part_ = &run;
  std::vector<Pass> passes;
  do {                            // repeats if the initial state was wrong and has been repaired
    passes = {pass(1), pass(0)};  // the gradients of own samples remain for the update
  } while (state_.compare(step - 1));
  if (!unanimous_passes(passes)) settle(passes);
  actions_.start_reductions();
  run(StepPhase::update);
}

template <class P>
void Audit<P>::after(std::int64_t step) {
  if (due(step + 1)) state_.keep(step);
}

template <class P>
auto Audit<P>::pass(int offset) -> Pass {
  const int replicas = parts_.data.size();
  Pass found{offset % replicas, {}, {}};
  grid::Heartbeat::publish({"audit", step_});
  parts_.finish_gathers();
  parts_.optimizer->zero_gradients(handle_);
  parts_.model->zero_losses(handle_);
  if (parts_.fp8) kernels::fill(handle_, parts_.fp8->maxima(), 0.0F);
  actions_.compute_samples_of((parts_.data.rank() + found.offset) % replicas);
  const auto show_to = [&](grid::Witness* witness) {
    for (grid::Communicator* ranks : {&parts_.tensor, &parts_.context, &parts_.pipeline})
      ranks->show_to(witness);
    if (parts_.vocabulary)
      for (grid::Communicator* ranks : parts_.vocabulary->communicators()) ranks->show_to(witness);
  };
  show_to(&list_);
  (*run_part_)(StepPhase::passes);
  show_to(nullptr);
  for (const auto& entry : parts_.parameters.entries())
    list_.add("gradient of " + entry.weight.name, entry.gradient.data);
  list_.add("gradient of the logits' weights", flat(parts_.parameters.tied_gradient()));
  list_.add("loss", parts_.model->losses());
  found.mine = list_.take();

  found.results.assign(static_cast<std::size_t>(replicas), 0);
  const std::vector<std::int64_t> all = grid_.world().all_gather(
      static_cast<std::int64_t>(combined(found.mine)), "hashes of an audit");
  for (Rank rank = 0; rank < grid_.world().size(); ++rank) {
    const int at = grid_.process_grid().position(Axis::data, rank);
    std::uint64_t& result = found.results[static_cast<std::size_t>(at)];
    const HashEntry both[] = {
        {result, false, {}},
        {static_cast<std::uint64_t>(all[static_cast<std::size_t>(rank)]), false, {}}};
    result = combined(both);
  }
  return found;
}

/// The results of all passes for the samples of data rank `samples`.
template <class P>
std::vector<Voice> Audit<P>::voices(std::span<const Pass> passes, int samples) const {
  const int replicas = parts_.data.size();
  std::vector<Voice> found;
  for (const Pass& pass : passes) {
    const int by = (samples - pass.offset + replicas) % replicas;
    found.push_back({by, pass.results[static_cast<std::size_t>(by)]});
  }
  return found;
}

template <class P>
bool Audit<P>::unanimous_passes(std::span<const Pass> passes) const {
  for (int samples = 0; samples < parts_.data.size(); ++samples)
    if (!unanimous(voices(passes, samples))) return false;
  return true;
}

/// Runs two more passes to find the wrong ranks. With AuditAction::repair, and if all right results
/// are known, repeats the pass over own samples, at most twice, until the results are right.
/// Reports the wrong ranks, and throws unless the results were repaired. Collective.
template <class P>
void Audit<P>::settle(std::vector<Pass>& passes) {
  for (const int offset : {2, 3}) passes.push_back(pass(offset));
  std::set<int> doubted;
  for (int samples = 0; samples < parts_.data.size(); ++samples)
    doubted.merge(contradicting(voices(passes, samples)));
  Finding mine;
  std::vector<std::optional<std::uint64_t>> right;
  for (int samples = 0; samples < parts_.data.size(); ++samples) {
    const auto all = voices(passes, samples);
    right.push_back(agreed_value(all, doubted));
    if (unanimous(all)) continue;
    const Finding found = examine(passes, samples, right.back());
    mine.add(found.level, found.what);
  }
  const auto suspects = suspects_of(grid_.world(), mine);
  bool repaired = false;
  const bool decided = std::ranges::all_of(right, [](const auto& one) { return one.has_value(); });
  for (int trial = 0; trial < 2 && !repaired && decided && run_.audit == AuditAction::repair;
       ++trial)
    repaired = std::ranges::equal(pass(0).results, right,
                                  [](auto result, const auto& one) { return result == *one; });
  report_suspects(grid_.world(), run_.directory, step_, suspects, repaired);
}

/// Finding about this rank from the passes over the samples of data rank `samples`: compares this
/// rank's hashes in a wrong pass with a replica's hashes in a pass with the result `right`. If no
/// right result is known, compares two passes with different results. Collective on the data axis.
template <class P>
Finding Audit<P>::examine(std::span<const Pass> passes, int samples,
                          std::optional<std::uint64_t> right) const {
  const std::vector<Voice> all = voices(passes, samples);
  const auto number_of = [&](const auto& is) {
    return static_cast<std::size_t>(std::ranges::find_if(all, is) - all.begin());
  };
  const std::size_t first =
      right ? number_of([&](const Voice& voice) { return voice.value == *right; }) : 0;
  const std::size_t second =
      number_of([&](const Voice& voice) { return voice.value != all[first].value; });
  std::vector<std::vector<HashEntry>> lists;
  for (const std::size_t number : {first, second})
    lists.push_back(from_words(parts_.data.broadcast(to_words(passes[number].mine),
                                                     all[number].replica, "hashes of an audit")));
  Finding found;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const bool as_first = all[i].value == all[first].value;
    if (all[i].replica != parts_.data.rank() || (right && as_first)) continue;
    const std::vector<HashEntry>& mine = passes[i].mine;
    const std::size_t at = first_difference(mine, lists[as_first ? 1 : 0]);
    if (at == mine.size()) continue;
    if (mine[at].received)
      found.add(Finding::received, "received other numbers: " + mine[at].name);
    else
      found.add(right ? Finding::wrong : Finding::suspected,
                "computed other numbers: " + mine[at].name);
  }
  return found;
}

template class Audit<model::Fp32>;
template class Audit<model::Fp64>;
template class Audit<model::MixedBf16>;
template class Audit<model::MixedFp16>;

}  // namespace trireme::train
