#pragma once

#include <trireme/data/text_step.hpp>

#include <memory>

namespace trireme::data {

/// NFC, NFD, NFKC, NFKD (Unicode TR 15).
enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::unique_ptr<TextStep> make_normal_form(NormalForm form);

}  // namespace trireme::data
