// The report of `trireme plan` as text and as JSON.
#include <trireme/base/text.hpp>
#include <trireme/commands/check/tables.hpp>
#include <trireme/commands/plan/plan_report.hpp>
#include <trireme/deck/layout.hpp>

#include <nlohmann/json.hpp>

namespace trireme::commands {
namespace {

using plan::Candidate;
using plan::Cause;
using Rows = std::vector<std::vector<std::string>>;

/// Five decimals below 0.1 s, three below 10 s, otherwise one.
std::string seconds_text(Seconds s) {
  return fixed(s, s < 0.1 ? 5 : s < 10 ? 3 : 1) + " s";
}

/// A table of the best layouts, and a line of overrides for each layout.
std::string best_text(const PlanReport& report) {
  Rows rows{{"", "step", "tokens/s", "MFU", "idle", "memory", "layout"}};
  std::string lines;
  for (std::size_t i = 0; i < report.shown(); ++i) {
    const Candidate& c = report.found.candidates[i];
    std::vector<std::string> row{text(i + 1)};
    for (std::string& figure : figures(report, c)) row.push_back(std::move(figure));
    row.push_back(name_of_layout(c.layout));
    rows.push_back(std::move(row));
    lines += text("\n  ", i + 1, "  ", overrides_of(report, c.layout));
  }
  return columns(rows, 1, "  ", true) + "\n\noverrides" + lines;
}

/// Seconds by cause of the best layouts and of the deck's own layout.
std::string causes_text(const PlanReport& report) {
  Rows rows{{"seconds of a step"}};
  std::vector<const Candidate*> shown;
  for (std::size_t i = 0; i < report.shown(); ++i) {
    shown.push_back(&report.found.candidates[i]);
    rows.front().push_back(text(i + 1));
  }
  if (report.own) {
    shown.push_back(&*report.own);
    rows.front().push_back("deck");
    rows.front().push_back("deck − 1");
  }
  const auto add = [&](std::string name, const auto& seconds) {
    std::vector<std::string> row{std::move(name)};
    for (const Candidate* c : shown) row.push_back(fixed(seconds(*c), 4));
    if (report.own)
      row.push_back(fixed(seconds(*report.own) - seconds(report.found.candidates.front()), 4));
    rows.push_back(std::move(row));
  };
  for (std::size_t i = 0; i < plan::causes; ++i)
    add(std::string(name_of(static_cast<Cause>(i))),
        [i](const Candidate& c) { return c.time.shares[i]; });
  add("sum", [](const Candidate& c) { return c.time.seconds; });
  return columns(rows, 1, "  ");
}

std::string front_text(const PlanReport& report) {
  Rows rows{{"memory", "step", "layout"}};
  for (const Candidate& c : report.found.front)
    rows.push_back({human_bytes(c.bytes), seconds_text(c.seconds()),
                    name_of_layout(c.layout) + (c.simulated ? "" : " (estimated)")});
  return columns(rows, 0, "  ", true);
}

std::string own_text(const PlanReport& report) {
  if (!report.own)
    return report.own_problem.empty() ? "" : text("\n\ndeck's layout  ", report.own_problem);
  const Candidate& own = *report.own;
  const Candidate& best = report.found.candidates.front();
  const double longer = own.seconds() / best.seconds() - 1;
  std::string out = text("\n\ndeck's layout  ", name_of_layout(own.layout), ": ",
                         seconds_text(own.seconds()), ", ", human_bytes(own.bytes));
  if (report.found.limit > 0 && own.bytes > report.found.limit)
    out += text("; it does not fit into ", human_bytes(report.found.limit));
  out += longer > 0   ? text("\n               takes ", percent(longer), " longer than layout 1")
         : longer < 0 ? text("\n               takes ", percent(-longer),
                             " less than layout 1, which keeps the fixed keys")
                      : "\n               is as fast as layout 1";
  return out;
}

nlohmann::json json_of(const PlanReport& report, const Candidate& c) {
  nlohmann::json causes;
  for (std::size_t i = 0; i < plan::causes; ++i)
    causes[std::string(name_of(static_cast<Cause>(i)))] = c.time.shares[i];
  const plan::Layout& l = c.layout;
  return {{"overrides", overrides_of(report, l)},
          {"layout",
           {{"tensor", l.tensor},
            {"pipeline", l.pipeline},
            {"data", l.data},
            {"micro", l.micro},
            {"chunks", l.chunks},
            {"schedule", name_of(l.schedule)},
            {"recompute", name_of(l.recompute)},
            {"sequence_parallel", l.sequence_parallel},
            {"shard", name_of(l.shard)},
            {"shard_group", l.shard_group},
            {"expert", l.expert}}},
          {"step_seconds", c.seconds()},
          {"simulated", c.simulated},
          {"estimated_seconds", c.estimate},
          {"tokens_per_second", report.tokens_per_second(c)},
          {"mfu", report.utilization(c)},
          {"idle_share", c.time.idle_share},
          {"bytes", c.bytes},
          {"seconds_by_cause", causes}};
}

}  // namespace

std::vector<std::string> figures(const PlanReport& report, const Candidate& c) {
  return {seconds_text(c.seconds()),
          with_commas(static_cast<std::int64_t>(report.tokens_per_second(c))),
          percent(report.utilization(c)), percent(c.time.idle_share), human_bytes(c.bytes)};
}

double PlanReport::tokens_per_second(const Candidate& c) const {
  return static_cast<double>(deck.config.batch.global * deck.config.model.sequence) / c.seconds();
}

double PlanReport::utilization(const Candidate& c) const {
  const deck::PrecisionConfig& p = deck.config.precision;
  return c.time.model_flops /
         (c.seconds() * static_cast<double>(ranks) * machine.peak(p.compute, p.tf32));
}

std::string overrides_of(const PlanReport& report, const plan::Layout& layout) {
  deck::Deck deck;
  layout.set(deck.config);
  std::vector<std::string> keys = deck::layout_overrides(deck);
  if (!report.deck.config.model.experts.present()) std::erase(keys, "parallel.expert=1");
  return join(keys, " ");
}

std::string name_of_layout(const plan::Layout& l) {
  return text("data ", l.data, " · pipeline ", l.pipeline, " · tensor ", l.tensor, ", micro ",
              l.micro, ", ", name_of(l.schedule),
              l.chunks > 1 ? text(" with ", l.chunks, " chunks") : "",
              l.recompute == Recompute::none ? "" : text(", recompute ", name_of(l.recompute)),
              l.sequence_parallel ? ", sequence parallel" : "",
              l.shard == Sharding::none ? "" : text(", shard ", name_of(l.shard)),
              l.shard_group == 0 ? "" : text(" in groups of ", l.shard_group),
              l.expert == 1 ? "" : text(", experts of ", l.expert, " replicas"));
}

std::string plan_text(const PlanReport& report) {
  const plan::SearchResult& found = report.found;
  std::string out = text("deck          ", report.deck.file_name, ", ", report.ranks,
                         report.ranks == 1 ? " rank" : " ranks", " of ", report.machine.called(),
                         "\nmemory        ",
                         found.limit > 0 ? text(human_bytes(found.limit), " per rank")
                                         : "no limit is known; give --memory-limit");
  if (!report.assumption.empty()) out += "\nspeeds        " + report.assumption;
  const std::vector<std::string> fixed_keys = deck::fixed_keys(report.deck);
  if (!fixed_keys.empty()) out += "\nfixed         " + join(fixed_keys, ", ");
  out += text("\nsearch        ", with_commas(found.evaluated), " layouts fit; the best ",
              found.candidates.size(), " were simulated");
  out += "\n\nbest layouts\n" + best_text(report);
  out += own_text(report);
  out += "\n\n" + causes_text(report);
  out += "\n\nPareto front of time and memory\n" + front_text(report);
  if (found.rejected.empty()) return out;
  Rows rows{{"layouts", "rejected because"}};
  for (const plan::Rejection& r : found.rejected)
    rows.push_back({with_commas(r.layouts), r.reason});
  return out + "\n\n" + columns(rows, 0, "  ", true);
}

std::string plan_json(const PlanReport& report) {
  const auto list = [&](const std::vector<Candidate>& candidates) {
    auto out = nlohmann::json::array();
    for (const Candidate& c : candidates) out.push_back(json_of(report, c));
    return out;
  };
  nlohmann::json rejected = nlohmann::json::object();
  for (const plan::Rejection& r : report.found.rejected) rejected[r.reason] = r.layouts;
  nlohmann::json out{{"deck", report.deck.file_name},
                     {"machine", report.machine.name},
                     {"ranks", report.ranks},
                     {"fixed", deck::fixed_keys(report.deck)},
                     {"memory_limit", report.found.limit},
                     {"candidates", list(report.found.candidates)},
                     {"front", list(report.found.front)},
                     {"rejected", rejected},
                     {"evaluated", report.found.evaluated},
                     {"estimating_seconds", report.found.estimating},
                     {"seconds", report.found.seconds}};
  out["own"] = report.own ? json_of(report, *report.own) : nlohmann::json();
  if (!report.own_problem.empty()) out["own_problem"] = report.own_problem;
  return out.dump(2) + "\n";
}

}  // namespace trireme::commands
