#pragma once

#include <trireme/deck/config.hpp>

#include <string>

namespace trireme::plan {

/// Whether this installation's matrix products are cuBLASLt's.
bool has_cublaslt();

/// What [precision] tf32 = true comes to here, for `check` and the log; empty without it.
std::string tf32_note(const deck::PrecisionConfig& precision);

}  // namespace trireme::plan
