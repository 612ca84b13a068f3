// The content of a folder's file `owner`, and the judgement whether the owner lives.
#include <trireme/base/owner_entry.hpp>
#include <trireme/base/text.hpp>

#include <cstdlib>
#include <map>
#include <sstream>

namespace trireme {
namespace {

constexpr const char* last_line = "end\n";

}  // namespace

std::string OwnerEntry::description() const {
  if (process.host.empty()) return "a process that is not known";
  return text("process ", process.process, " on ", process.host,
              job.empty() ? "" : text(", job ", job));
}

std::string to_text(const OwnerEntry& e) {
  return text("host ", e.process.host, "\nprocess ", e.process.process, "\nstarted ",
              e.process.started, "\nsystem ", e.process.system, "\njob ", e.job, "\npart ", e.part,
              "\nheartbeat_limit ", e.heartbeat_limit, "\nbegun ", e.begun, "\nnonce ", e.nonce,
              "\n", last_line);
}

std::optional<OwnerEntry> parse_owner(const std::string& content) {
  if (!content.ends_with(last_line)) return std::nullopt;
  std::map<std::string, std::string> values;
  std::istringstream in(content);
  for (std::string line; std::getline(in, line);)
    if (const auto space = line.find(' '); space != std::string::npos)
      values[line.substr(0, space)] = line.substr(space + 1);
  OwnerEntry e;
  e.process = {values["host"], values["system"], std::atoll(values["process"].c_str()),
               std::atoll(values["started"].c_str())};
  e.job = values["job"];
  e.part = values["part"];
  e.heartbeat_limit = std::atof(values["heartbeat_limit"].c_str());
  e.begun = values["begun"];
  e.nonce = values["nonce"];
  if (e.process.host.empty() || e.nonce.empty() || !(e.heartbeat_limit > 0)) return std::nullopt;
  return e;
}

OwnerJudgement judge(const OwnerEntry& owner, const OwnerEntry& mine, Seconds age, bool before_boot,
                     bool locked) {
  using enum OwnerJudgement::Verdict;
  const auto late = text("its last heartbeat is ", fixed(age, 0), " s old");
  switch (life_of(owner.process)) {
    case Life::alive:
      return {alive, ""};
    case Life::dead:
      return {dead, "there is no such process"};
    case Life::not_known:
      break;
  }
  const bool same_host = owner.process.host == mine.process.host;
  const bool same_job = !owner.job.empty() && owner.job == mine.job;
  if (same_job && owner.part != mine.part) return {dead, "its job was restarted"};
  if (same_host && locked) return {alive, ""};  // this host's kernel knows
  if (same_host && before_boot) return {dead, "its host was rebooted"};
  if (age > owner.heartbeat_limit) return {dead, late};
  if (same_job && age > heartbeat_missed_seconds) return {dead, late + ", and its job runs here"};
  // A job that was moved to another host finds its own heartbeat of a moment ago.
  if (age <= heartbeat_missed_seconds && !same_job) return {alive, ""};
  return {unclear, ""};
}

}  // namespace trireme
