// The predicted time of a step: lines for a terminal, and JSON.
#include <trireme/commands/check/time.hpp>

#include <trireme/base/text.hpp>
#include <trireme/commands/check/tables.hpp>
#include <trireme/plan/choices.hpp>

#include <nlohmann/json.hpp>

namespace trireme::commands {
namespace {

/// A time with its unit: "102.6 s", "14.45 s", "352 ms", "35.20 ms".
std::string duration(Seconds s) {
  if (s >= 100) return fixed(s, 1) + " s";
  if (s >= 1) return fixed(s, 2) + " s";
  return s >= 0.1 ? fixed(1e3 * s, 0) + " ms" : fixed(1e3 * s, 2) + " ms";
}

std::int64_t ranks_of(const deck::ParallelConfig& p) {
  return p.ranks();
}

/// The main assumptions of a prediction.
std::string assumptions(const deck::Config& c, const plan::Machine& m) {
  const plan::Machine::Software& s = m.software;
  std::string out =
      text("products reach ", percent(m.device.product_efficiency), " of the peak, memory ",
           percent(m.device.memory_efficiency), ", attention ",
           percent(m.device.attention_efficiency), s.fused_attention ? "" : " with stored scores");
  const auto hidden = [](double share) { return percent(share) + " hidden"; };
  out += text("; messages of tensor groups ", hidden(s.tensor_overlap), ", sums of gradients ",
              hidden(s.gradient_overlap), ", messages between stages ", hidden(s.pipeline_overlap));
  if (c.parallel.divides_state()) {
    const bool moves = plan::transport(c.parallel, m) == schedule::Transport::ordered_groups;
    out += text(", gathers of weights up to ", hidden(moves ? s.gather_overlap : 0));
  }
  return out;
}

}  // namespace

Rates rates_of(const deck::Config& c, const plan::StepTime& time, const plan::Machine& machine) {
  const auto tokens = static_cast<double>(c.batch.global * c.model.sequence);
  const double possible = time.seconds * static_cast<double>(ranks_of(c.parallel)) *
                          machine.peak(c.precision.compute, c.precision.tf32);
  return {tokens / time.seconds, time.model_flops / possible, time.hardware_flops / possible};
}

std::string time_report(const deck::Config& c, const plan::StepTime& time,
                        const plan::Machine& machine) {
  const Rates rates = rates_of(c, time, machine);
  const std::int64_t ranks = ranks_of(c.parallel);
  const double per_rank = time.hardware_flops / time.seconds / static_cast<double>(ranks);
  std::string out =
      text("  ", duration(time.seconds), ", ",
           with_commas(static_cast<std::int64_t>(rates.tokens_per_second)), " tokens/s",
           ranks > 1 ? text(", ",
                            with_commas(static_cast<std::int64_t>(rates.tokens_per_second /
                                                                  static_cast<double>(ranks))),
                            " per rank")
                     : "",
           "\n  MFU ", percent(rates.mfu), ", HFU ", percent(rates.hfu), " of ",
           fixed(machine.peak(c.precision.compute, c.precision.tf32) / 1e12, 1),
           " TFLOP/s per rank; ", fixed(per_rank / 1e12, 1), " TFLOP/s with recomputation",
           c.parallel.pipeline > 1 ? text("; pipeline ranks idle ", percent(time.idle_share)) : "",
           "\n");
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < plan::causes; ++i)
    if (time.shares[i] >= 5e-4 * time.seconds)
      rows.push_back({std::string(plan::name_of(static_cast<plan::Cause>(i))),
                      duration(time.shares[i]), percent(time.shares[i] / time.seconds)});
  out += columns(rows, 1, "  ");
  if (c.run.audit_every > 0) {
    const Seconds passes =
        time.seconds - time.of(plan::Cause::optimizer) - time.of(plan::Cause::data);
    out += text("\n  audits: ", duration(passes / static_cast<double>(c.run.audit_every)),
                " per step, averaged over all steps");
  }
  return out + "\n  assumed: " + assumptions(c, machine);
}

nlohmann::json plan_json(const deck::Config& c, const plan::StepTime* time, Bytes memory,
                         Bytes limit, const plan::Machine& machine) {
  nlohmann::json out;
  const deck::ParallelConfig& p = c.parallel;
  out["machine"] = machine.name;
  out["ranks"] = ranks_of(p);
  out["layout"] = {{"tensor", p.tensor}, {"pipeline", p.pipeline}, {"data", p.data}};
  if (p.context > 1) out["layout"]["context"] = p.context;
  out["memory_bytes"] = memory;
  if (limit > 0) {
    out["memory_limit"] = limit;
    out["fits"] = memory <= limit;
  }
  if (time == nullptr) return out;
  const Rates rates = rates_of(c, *time, machine);
  out["step_seconds"] = time->seconds;
  out["tokens_per_second"] = rates.tokens_per_second;
  out["mfu"] = rates.mfu;
  out["hfu"] = rates.hfu;
  out["idle_share"] = time->idle_share;
  for (std::size_t i = 0; i < plan::causes; ++i)
    out["shares"][std::string(plan::name_of(static_cast<plan::Cause>(i)))] = time->shares[i];
  return out;
}

}  // namespace trireme::commands
