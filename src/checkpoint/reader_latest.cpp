// Finds the checkpoint to resume from: that of the note, that of the file `latest`, then the intact
// ones on its branch, the newest first. Lineages are read only if the first two cannot be used.
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/checkpoint/attempt.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/lineage.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/checkpoint/verify.hpp>

#include <algorithm>
#include <filesystem>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The checkpoint that the file `latest` names, if it exists. `warns`: says why there is none.
std::optional<std::string> named_latest(const std::string& directory, bool warns) {
  const std::string path = directory + "/" + latest_name;
  std::string name;
  std::string reason = " is missing";
  try {
    name = read_latest(directory);
    std::error_code missing;
    if (step_of(name) && fs::is_directory(directory + "/" + name, missing)) return name;
    if (fs::exists(fs::symlink_status(path, missing)))
      reason = text(": names '", name.substr(0, 80), "', which is not a checkpoint in ", directory);
  } catch (const Error& error) {
    reason = text(": ", error.what());
  }
  if (warns && !folders_in(directory).empty())
    log::warn(text(path, reason, "; the newest intact checkpoint is used"));
  return std::nullopt;
}

bool intact(const std::string& folder) {
  try {
    verify_outline(folder, read_manifest(folder));
    return true;
  } catch (const Error& error) {
    log::warn(text("checkpoint ", folder, " is passed over: ", error.what()));
    return false;
  }
}

Start last_start(const Member& member) {
  return member.lineage.starts.empty() ? Start{} : member.lineage.starts.back();
}

/// The end of the branch that the directory's run has written last: its last attempt. Without one
/// of that run, the run with the highest step counts.
const Member& newest(const std::vector<Member>& members, const std::string& directory) {
  std::string run;
  try {
    run = read_attempt(directory).value_or(Attempt{}).run;
  } catch (const Error&) {  // damaged
  }
  const auto is_of_run = [&](const Member& m) { return last_start(m).run == run; };
  if (std::ranges::none_of(members, is_of_run)) run = last_start(members.front()).run;
  const Member* last = nullptr;
  for (const Member& member : members)
    if (is_of_run(member) &&
        (last == nullptr || last_start(member).attempt > last_start(*last).attempt))
      last = &member;
  return *last;
}

}  // namespace

std::optional<std::string> latest(const std::string& directory) {
  std::set<std::string> damaged;
  return latest(directory, damaged);
}

std::optional<std::string> latest(const std::string& directory, std::set<std::string>& damaged) {
  const auto usable = [&](const std::string& name) {
    const std::string folder = directory + "/" + name;
    if (damaged.contains(folder)) return false;
    if (intact(folder)) return true;
    damaged.insert(folder);
    return false;
  };
  if (const auto last = announced(directory); last && usable(*last)) return directory + "/" + *last;
  // The file's own path among the damaged: one warning, however often this is called.
  const auto named = named_latest(directory, damaged.insert(directory + "/" + latest_name).second);
  if (named && usable(*named)) return directory + "/" + *named;

  std::vector<std::string> unreadable;
  std::vector<Member> members = members_of(directory, &unreadable);
  std::optional<Lineage> tip;
  for (const Member& member : members)
    if (member.name == named) tip = member.lineage;
  if (named && !tip)  // its branch is not known, and later steps may belong to another one
    std::erase_if(members, [&](const Member& m) { return m.lineage.step >= *step_of(*named); });
  if (!tip && !members.empty()) tip = newest(members, directory).lineage;
  for (const std::string& name : unreadable)
    if (!named && (!tip || *step_of(name) > tip->step)) usable(name);  // warns
  if (!tip) return std::nullopt;
  for (const Member& member : members)
    if (precedes(member.lineage, *tip) && usable(member.name)) return directory + "/" + member.name;
  return std::nullopt;
}

std::string checkpoint_folder(const std::string& path) {
  check_usage(fs::is_directory(path), path, ": no such checkpoint folder");
  if (fs::exists(path + "/" + manifest_name)) return path;
  std::error_code missing;
  const std::string of_run = path + "/checkpoints";
  const bool is_run = fs::is_directory(of_run, missing);
  auto newest = latest(path);
  if (!newest && is_run) newest = latest(of_run);
  check_usage(newest.has_value(), path,
              is_run ? "/checkpoints has no complete checkpoint; "
                     : " is neither a checkpoint, nor a folder of complete checkpoints or of a "
                       "run; ",
              "give a folder such as step_00000100");
  return *newest;
}

}  // namespace trireme::checkpoint
