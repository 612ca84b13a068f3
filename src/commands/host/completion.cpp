// `trireme completion`: scripts for bash, zsh and fish.
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/shells.hpp>
#include <trireme/data/chat.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/deck/key_file.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <sstream>

namespace trireme::commands {
namespace {

using Argument = CompletedOption::Argument;
using Operands = CompletedCommand::Operands;

const std::vector<std::string> shells{"bash", "zsh", "fish"};

/// Valid values in CLI11's type name of an option, "TEXT:{a,b}".
std::vector<std::string> words_in(const std::string& type) {
  std::vector<std::string> words;
  const std::size_t open = type.find('{');
  if (open == std::string::npos) return words;
  std::istringstream list(type.substr(open + 1, type.find('}', open) - open - 1));
  for (std::string word; std::getline(list, word, ',');) words.push_back(word);
  return words;
}

CompletedOption completed(const CLI::Option& option) {
  CompletedOption out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  out.help = option.get_description();
  if (option.get_items_expected_max() == 0) return out;
  const std::string type = option.get_type_name();
  out.words = words_in(type);
  if (out.names.back() == "--chat") out.words = data::chat_format_names();
  if (out.names.back() == "--format" && out.words.empty()) out.words = {"text", "jsonl"};
  out.argument = !out.words.empty()                  ? Argument::word
                 : type == "FOLDER"                  ? Argument::folder
                 : type == "FILE" || type == "PATH"  ? Argument::file
                 : out.names.back() == "--tokenizer" ? Argument::file
                 : out.names.back() == "--output"    ? Argument::file
                                                     : Argument::text;
  return out;
}

/// The valid values of a key if they can be listed; otherwise empty.
std::vector<std::string> values_of(const deck::KeyText& key) {
  if (key.type == deck::KeyType::boolean) return {"true", "false"};
  return {key.choices.begin(), key.choices.end()};
}

std::string full_name(const deck::KeyText& key) {
  return text(key.section, ".", key.name);
}

/// The word in single quotes: for fish if `fish`, otherwise for bash and zsh.
std::string in_quotes(const std::string& word, bool fish = false) {
  std::string out = "'";
  for (const char c : word) {
    if (c == '\'')
      out += fish ? "\\'" : "'\\''";
    else if (c == '\\' && fish)
      out += "\\\\";
    else
      out += c;
  }
  return out + "'";
}

/// The first sentence or clause of the first line.
std::string brief(const std::string& help) {
  std::string line = help.substr(0, help.find('\n'));
  for (const char* end : {". ", "; ", ": "}) line = line.substr(0, line.find(end));
  return line;
}

std::string joined_names(const CompletedCommand& command) {
  std::vector<std::string> names;
  for (const CompletedOption& option : command.options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  return join(names, " ");
}

std::string bash_argument(const CompletedOption& option) {
  switch (option.argument) {
    case Argument::none:
      return "";
    case Argument::file:
      return "@file";
    case Argument::folder:
      return "@folder";
    case Argument::text:
      return "@text";
    case Argument::word:
      return join(option.words, " ");
  }
  return "";
}

std::string bash_operands(const CompletedCommand& command) {
  switch (command.operands) {
    case Operands::deck_and_keys:
      return "@deck";
    case Operands::path_and_keys:
      return "@path";
    case Operands::paths:
      return "@file";
    case Operands::words:
      return join(command.words, " ");
    case Operands::none:
      return "";
  }
  return "";
}

std::string bash_script(const std::vector<CompletedCommand>& commands) {
  std::vector<std::string> names{"--help", "--version"};
  std::string options, arguments, operands, keys, values;
  for (const CompletedCommand& command : commands) {
    names.push_back(command.name);
    options += text("    ", command.name, ") echo ", in_quotes(joined_names(command)), " ;;\n");
    operands += text("    ", command.name, ") echo ", in_quotes(bash_operands(command)), " ;;\n");
    for (const CompletedOption& option : command.options) {
      if (option.argument == Argument::none) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) patterns.push_back(command.name + ":" + name);
      arguments +=
          text("    ", join(patterns, "|"), ") echo ", in_quotes(bash_argument(option)), " ;;\n");
    }
  }
  for (const deck::KeyText* key : deck::deck_kind().table) {
    keys += full_name(*key) + "=\n";
    if (const auto known = values_of(*key); !known.empty())
      values += text("    ", full_name(*key), ") echo ", in_quotes(join(known, " ")), " ;;\n");
  }
  return text("# bash completion for trireme, made by `trireme completion bash`\n",
              "_trireme_options() {\n  case $1 in\n", options, "  esac\n}\n",
              "# What follows an option: words, or @file, @folder or @text.\n",
              "_trireme_argument() {\n  case $1:$2 in\n", arguments, "  esac\n}\n",
              "_trireme_operands() {\n  case $1 in\n", operands, "  esac\n}\n",
              "_trireme_values() {\n  case $1 in\n", values, "  esac\n}\n", "_trireme_keys='\n",
              keys, "'\n", R"bash(_trireme_paths() {
  compopt -o filenames 2>/dev/null
  local IFS=$'\n'
  COMPREPLY=($(compgen "$1" -- "$2"))
}
_trireme_has_deck() {
  local word
  for word in "${COMP_WORDS[@]:2:COMP_CWORD-2}"; do
    [[ $word == *.toml || ( $word != -* && -d $word ) ]] && return 0
  done
  return 1
}
_trireme() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}
  local name='' expected='' i
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W ")bash",
              join(names, " "), R"bash(" -- "$word"))
    return
  fi
  # bash splits section.key=value into three words.
  if [[ $word == = ]]; then
    name=$before word=''
  elif [[ $before == = ]]; then
    name=${COMP_WORDS[COMP_CWORD-2]}
  fi
  if [[ -n $name && $name != -* ]]; then
    COMPREPLY=($(compgen -W "$(_trireme_values "$name")" -- "$word"))
    [[ $name == data.* || $name == *directory ]] && _trireme_paths -f "$word"
    return
  fi
  expected=$(_trireme_argument "$command" "${name:-$before}")
  case $expected in
    @file) _trireme_paths -f "$word"; return ;;
    @folder) _trireme_paths -d "$word"; return ;;
    @text) return ;;
    ?*) COMPREPLY=($(compgen -W "$expected" -- "$word")); return ;;
  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$(_trireme_options "$command")" -- "$word"))
    return
  fi
  expected=$(_trireme_operands "$command")
  if [[ $expected == @deck ]] && ! _trireme_has_deck; then
    _trireme_paths -f "$word"
    local all=("${COMPREPLY[@]}")
    COMPREPLY=()
    for i in "${all[@]}"; do
      [[ $i == *.toml || -d $i ]] && COMPREPLY+=("$i")
    done
    return
  fi
  case $expected in
    @deck | @path)
      COMPREPLY=($(compgen -W "$_trireme_keys" -- "$word"))
      if ((${#COMPREPLY[@]} > 0)) && [[ $expected == @deck || -n $word ]]; then
        compopt -o nospace 2>/dev/null
      else
        _trireme_paths -f "$word"
      fi ;;
    @file) _trireme_paths -f "$word" ;;
    ?*) COMPREPLY=($(compgen -W "$expected" -- "$word")) ;;
  esac
}
complete -F _trireme trireme
)bash");
}

/// The text, escaped for a specification of _arguments or a list of _describe.
std::string zsh_text(const std::string& help) {
  std::string out;
  for (const char c : help) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_option(const CompletedOption& option, const std::string& name) {
  std::string rest;
  switch (option.argument) {
    case Argument::none:
      break;
    case Argument::file:
      rest = ":file:_files";
      break;
    case Argument::folder:
      rest = ":folder:_files -/";
      break;
    case Argument::text:
      rest = ":value: ";
      break;
    case Argument::word:
      rest = text(":value:(", join(option.words, " "), ")");
      break;
  }
  return in_quotes(text("*", name, "[", zsh_text(brief(option.help)), "]", rest));
}

std::string zsh_script(const std::vector<CompletedCommand>& commands) {
  std::string names, cases, keys, values;
  for (const CompletedCommand& command : commands) {
    names += text("    ", in_quotes(text(command.name, ":", zsh_text(brief(command.help)))), "\n");
    cases += text("    ", command.name, ")\n      _arguments -S");
    for (const CompletedOption& option : command.options)
      for (const std::string& name : option.names)
        cases += text(" \\\n        ", zsh_option(option, name));
    switch (command.operands) {
      case Operands::deck_and_keys:
        cases += " \\\n        '1:deck:_files -g \"*.toml\"' '*:key:_trireme_keys'";
        break;
      case Operands::path_and_keys:
        cases += " \\\n        '1:path:_files' '*:key:_trireme_keys'";
        break;
      case Operands::paths:
        cases += " \\\n        '*:path:_files'";
        break;
      case Operands::words:
        cases += text(" \\\n        ", in_quotes(text("1:topic:(", join(command.words, " "), ")")));
        break;
      case Operands::none:
        break;
    }
    cases += " ;;\n";
  }
  for (const deck::KeyText* key : deck::deck_kind().table) {
    keys +=
        text("    ", in_quotes(text(full_name(*key), ":", zsh_text(brief(std::string(key->help))))),
             "\n");
    if (const auto known = values_of(*key); !known.empty())
      values += text("      ", full_name(*key), ") compadd -- ", join(known, " "), " ;;\n");
  }
  return text("#compdef trireme\n# zsh completion, made by `trireme completion zsh`\n",
              "_trireme_keys() {\n  if compset -P 1 '*='; then\n    case ${IPREFIX%=} in\n", values,
              "      *) _files ;;\n    esac\n    return\n  fi\n  local -a keys\n  keys=(\n", keys,
              "  )\n  _describe -t keys key keys -qS =\n}\n",
              "_trireme() {\n  local -a commands\n  commands=(\n", names,
              "  )\n  if ((CURRENT == 2)); then\n    _describe -t commands command commands\n"
              "    return\n  fi\n  local command=$words[2]\n  shift words\n  ((CURRENT--))\n"
              "  case $command in\n",
              cases,
              "  esac\n}\nif [[ $funcstack[1] == _trireme ]]; then\n  _trireme \"$@\"\nelse\n"
              "  compdef _trireme trireme\nfi\n");
}

std::string fish_script(const std::vector<CompletedCommand>& commands) {
  std::string out =
      "# fish completion for trireme, made by `trireme completion fish`\n"
      "complete -c trireme -f\n";
  const auto quote = [](const std::string& word) { return in_quotes(word, true); };
  std::vector<std::string> with_decks;
  std::vector<std::string> with_keys;
  for (const CompletedCommand& command : commands) {
    const std::string used = text("'__fish_seen_subcommand_from ", command.name, "'");
    out += text("complete -c trireme -n __fish_use_subcommand -a ", command.name, " -d ",
                quote(brief(command.help)), "\n");
    for (const CompletedOption& option : command.options) {
      out += text("complete -c trireme -n ", used);
      for (const std::string& name : option.names)
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (option.argument == Argument::file) out += " -r -F";
      if (option.argument == Argument::folder) out += " -x -a '(__fish_complete_directories)'";
      if (option.argument == Argument::text) out += " -x";
      if (option.argument == Argument::word) out += " -x -a " + quote(join(option.words, " "));
      out += text(" -d ", quote(brief(option.help)), "\n");
    }
    switch (command.operands) {
      case Operands::deck_and_keys:
        with_decks.push_back(command.name);
        with_keys.push_back(command.name);
        break;
      case Operands::path_and_keys:
        with_keys.push_back(command.name);
        out += text("complete -c trireme -n ", used, " -F\n");
        break;
      case Operands::paths:
        out += text("complete -c trireme -n ", used, " -F\n");
        break;
      case Operands::words:
        out += text("complete -c trireme -n ", used, " -a ", quote(join(command.words, " ")), "\n");
        break;
      case Operands::none:
        break;
    }
  }
  out += "function __trireme_keys\n  printf '%s\\t%s\\n'";
  for (const deck::KeyText* key : deck::deck_kind().table) {
    const auto known = values_of(*key);
    out +=
        text(" \\\n    ", quote(full_name(*key) + "="), " ", quote(brief(std::string(key->help))));
    for (const std::string& value : known)
      out += text(" \\\n    ", quote(text(full_name(*key), "=", value)), " ''");
  }
  return out + text("\nend\ncomplete -c trireme -n '__fish_seen_subcommand_from ",
                    join(with_decks, " "), "' -a '(__fish_complete_suffix .toml)'\n",
                    "complete -c trireme -n '__fish_seen_subcommand_from ", join(with_keys, " "),
                    "' -a '(__trireme_keys)'\n");
}

}  // namespace

std::vector<CompletedCommand> completed_commands(const CLI::App& app) {
  std::vector<CompletedCommand> commands;
  for (const CLI::App* one : app.get_subcommands(nullptr)) {
    CompletedCommand command{one->get_name(), one->get_description(), Operands::none, {}, {}};
    bool keys = false;
    bool deck = false;
    for (const CLI::Option* option : one->get_options()) {
      if (!option->get_positional()) {
        command.options.push_back(completed(*option));
        continue;
      }
      command.operands = Operands::paths;
      keys = keys || option->get_name() == "OVERRIDES";
      deck = deck || option->get_name() == "DECK";
    }
    if (keys) command.operands = deck ? Operands::deck_and_keys : Operands::path_and_keys;
    if (command.name == "completion") {
      command.operands = Operands::words;
      command.words = shells;
    }
    commands.push_back(std::move(command));
  }
  for (CompletedCommand& command : commands) {
    if (command.name != "help") continue;
    command.operands = Operands::words;
    command.words = {"deck", "machine", "exit-codes", "environment"};
    for (const deck::Section& section : deck::deck_kind().sections)
      command.words.push_back(section.name);
    for (const CompletedCommand& topic : commands) command.words.push_back(topic.name);
  }
  return commands;
}

std::string completion_script(const CLI::App& app, const std::string& shell) {
  const auto commands = completed_commands(app);
  return shell == "bash"  ? bash_script(commands)
         : shell == "zsh" ? zsh_script(commands)
                          : fish_script(commands);
}

void add_completion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "completion", "Print a script with which a shell completes commands, options and deck keys");
  command->add_option("SHELL", *shell, text("Shell: ", join(shells, ", ")))
      ->required()
      ->check(CLI::IsMember(shells).description(""))
      ->type_name("");
  command->footer(
      "Installations contain these scripts in share/, where shells find them.\n\n"
      "Examples:\n"
      "  source <(trireme completion bash)        # in ~/.bashrc\n"
      "  source <(trireme completion zsh)         # in ~/.zshrc, after compinit\n"
      "  trireme completion fish > ~/.config/fish/completions/trireme.fish");
  command->callback([&app, shell] {
    std::string script = completion_script(app, *shell);
    script.pop_back();
    log::line(script);
  });
}

}  // namespace trireme::commands
