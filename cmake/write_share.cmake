# The files below share/ that the programs write:
# cmake -DPROGRAM=… -DFOLDER=… [-DPYTHON=… -DSCRIPTS=…] -P write_share.cmake
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
execute_process(COMMAND ${PROGRAM} help --share ${FOLDER} RESULT_VARIABLE code ERROR_VARIABLE said)
if(NOT code EQUAL 0)
  message(WARNING "${PROGRAM} does not run here (${code}: ${said}): no manual pages and completion scripts are installed")
endif()
if(PYTHON)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=${SCRIPTS} ${PYTHON} -B -m trireme_scripts.share ${FOLDER}
                  RESULT_VARIABLE code ERROR_VARIABLE said)
  if(NOT code EQUAL 0)
    message(WARNING "${PYTHON} (${code}: ${said}): trireme-job has no manual page and no completion")
  endif()
endif()
