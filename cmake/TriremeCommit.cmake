# Writes the header OUTPUT with the commit of the folder SOURCE, "" if it is not a git repository. Unchanged content keeps
# the file's time, so that nothing is compiled again.
set(commit "")
find_program(GIT git)
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} --no-optional-locks -C ${SOURCE} describe --always --dirty --exclude=*
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#pragma once\n#define TRIREME_COMMIT \"${commit}\"\n" @ONLY)
