#pragma once

#include <trireme/data/chat.hpp>

#include <string_view>

/// The Jinja templates of the models' repositories, one function per family. Each throws UsageError
/// for what its template refuses or leaves out.
namespace trireme::data {

/// Qwen2.5-Instruct. `default_system`: the system message of conversations without one; "": none.
Conversation write_qwen(const Chat& chat, std::string_view default_system);
/// Meta-Llama-3-Instruct.
Conversation write_llama3(const Chat& chat);
/// Llama-3.1-Instruct.
Conversation write_llama3_1(const Chat& chat);
/// Mistral-7B-Instruct-v0.3.
Conversation write_mistral(const Chat& chat);
/// Gemma 1 and 2.
Conversation write_gemma(const Chat& chat);

}  // namespace trireme::data
