#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/deck/deck.hpp>

#include <string>

namespace trireme::plan {

/// Whether this installation's matrix products are cuBLASLt's.
bool has_cublaslt();

/// What [precision] tf32 = true comes to here, for `check` and the log; empty without it.
std::string tf32_note(const deck::PrecisionConfig& precision);

/// Whether kernels run on devices, and cuDNN is not there.
bool lacks_cudnn();

/// Throws a UsageError where the deck asks for what this installation lacks.
void expect_attention(const deck::Deck& deck, bool lacks_cudnn = plan::lacks_cudnn());

/// Whether cuDNN computes the gradient of attention, which takes a workspace of its own size.
bool has_cudnn_gradient(const deck::PrecisionConfig& precision);

/// What [precision] attention comes to here, for `check` and the log; empty for "auto".
std::string attention_note(const deck::PrecisionConfig& precision);

}  // namespace trireme::plan
