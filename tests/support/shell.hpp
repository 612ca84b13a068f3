#pragma once

#include <gtest/gtest.h>

#include <support/temporary_folder.hpp>

#include <sys/wait.h>

#include <cstdlib>
#include <string>

namespace trireme::testing {

/// Runs `line` in a shell in the folder, with this build's programs first on the path. Returns the
/// exit code of the last command. Output is in the folder's files `out` and `err`.
inline int shell(const TemporaryFolder& folder, const std::string& line) {
  const std::string script =
      "cd '" + folder.path().string() + "'; PATH='" TRIREME_BINARY_DIR "/bin':$PATH; " + line;
  const auto path = folder.write("script", script);
  const int status = std::system(
      ("sh '" + path + "' >'" + folder.file("out") + "' 2>'" + folder.file("err") + "'").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

inline void expect_output(const TemporaryFolder& folder, const std::string& part) {
  const auto out = read_file(folder.file("out"));
  EXPECT_NE(out.find(part), std::string::npos) << "'" << part << "' in:\n" << out;
}

inline void expect_error(const TemporaryFolder& folder, const std::string& part) {
  const auto err = read_file(folder.file("err"));
  EXPECT_NE(err.find(part), std::string::npos) << "'" << part << "' in:\n" << err;
}

}  // namespace trireme::testing
