#include <trireme/deck/layout.hpp>
#include <trireme/plan/auto_layout.hpp>

namespace trireme::plan {

void choose_layout(deck::Deck& deck, std::int64_t ranks, const Machine&) {
  deck::expect_layout(deck, ranks);
  const std::vector<deck::Axes> all = deck::possible_axes(deck, ranks);
  const deck::Axes* best = &all.front();  // the most replicas; of those the most pipeline ranks
  for (const deck::Axes& axes : all)
    if (axes.data == best->data && axes.tensor < best->tensor) best = &axes;
  deck::Deck chosen = deck;
  deck::ParallelConfig& p = chosen.config.parallel;
  p.tensor = best->tensor;
  p.pipeline = best->pipeline;
  p.data = best->data;
  chosen.config.batch.micro = best->micro;
  if (!deck::is_fixed(deck, "parallel", "chunks"))
    p.chunks = p.schedule == ScheduleKind::interleaved ? 2 : 1;
  else if (p.chunks > 1 && !deck::is_fixed(deck, "parallel", "schedule"))
    p.schedule = ScheduleKind::interleaved;
  deck::set_layout(deck, deck::layout_overrides(chosen), "the most replicas");
}

}  // namespace trireme::plan
