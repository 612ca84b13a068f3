#include <trireme/base/process_memory.hpp>

#include <fstream>
#include <string>

namespace trireme {

Bytes peak_resident_bytes() {
  // Linux only. getrusage would also count the program that this one replaced by exec.
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (Bytes kibibytes = 0; word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  return 0;
}

}  // namespace trireme
