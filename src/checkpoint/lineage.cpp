#include <trireme/checkpoint/lineage.hpp>

#include <trireme/base/check.hpp>
#include <trireme/checkpoint/folders.hpp>

#include <algorithm>

namespace trireme::checkpoint {

bool precedes(const Lineage& earlier, const Lineage& later) {
  const auto& a = earlier.starts;
  const auto& b = later.starts;
  if (a.size() > b.size() || !std::equal(a.begin(), a.end(), b.begin())) return false;
  if (a.size() == b.size()) return earlier.step <= later.step;
  const Start& departure = b[a.size()];  // the start that left the series of `earlier`
  return earlier.step < departure.step ||
         (earlier.step == departure.step && earlier.digest == departure.parent);
}

std::vector<Member> members_of(const std::string& directory, std::vector<std::string>* unreadable) {
  std::vector<Member> members;
  for (const std::string& name : folders_in(directory)) {
    try {
      members.push_back({name, read_lineage(directory + "/" + name)});
    } catch (const Error&) {
      if (unreadable != nullptr) unreadable->push_back(name);
    }
  }
  return members;
}

std::vector<std::string> not_on_branch(const std::string& directory, const Lineage& tip) {
  std::vector<std::string> others;
  for (const Member& member : members_of(directory, &others))
    if (!precedes(member.lineage, tip)) others.push_back(member.name);
  std::ranges::sort(others, std::greater());
  return others;
}

}  // namespace trireme::checkpoint
