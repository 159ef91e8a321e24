# Embeds device text: a file with everything that it includes becomes one C++ string with a digest.
#
# tilekernels_embed_text(<variable> <op> <file> [<backend>]) sets <variable> to the C++ file that the
# build makes: `<op>_text` in the namespace of the backend, cuda unless said. Run as a script
# (cmake -P) this file makes it:
#   -DOP=… -DFILE=… -DROOT=<the folder that includes start from> -DBACKEND=… -DOUTPUT=… -DDEPFILE=…
# Includes are replaced by their text, each file once; #line keeps the compiler's messages true. For
# ascend the compiler's own headers (basic_api/) stay includes, and of `#ifdef __NPU_ARCH__`, `#else`,
# `#endif  // __NPU_ARCH__` the first branch stays: the other one is for hosts.
# The digest is taken after comments, blank lines and indentation are gone, so that only a change
# of the code makes kernels be compiled again.

function(tilekernels_embed_text variable op file)
  set(backend cuda)
  set(output ${PROJECT_BINARY_DIR}/device_text/${op}.cpp)
  if(ARGC GREATER 3)
    set(backend ${ARGV3})
    set(output ${PROJECT_BINARY_DIR}/device_text/${backend}/${op}.cpp)
  endif()
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOP=${op} -DFILE=${file} -DROOT=${PROJECT_SOURCE_DIR}/src
            -DBACKEND=${backend} -DOUTPUT=${output} -DDEPFILE=${output}.d
            -P ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake
    DEPENDS ${file} ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake
    DEPFILE ${output}.d
    COMMENT "Embedding the ${backend} text of ${op}"
    VERBATIM)
  set(${variable} ${output} PARENT_SCOPE)
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  return()
endif()
cmake_minimum_required(VERSION 3.25)

set(text "")
set(files "")

# Leaves in `left` what the NPU's compiler is to see; the number of lines stays.
function(keep_device_part)
  string(REGEX REPLACE "(^|\n)#include (\"basic_api/)" "\\1#vendor_include \\2" left "${left}")
  string(FIND "${left}" "#ifdef __NPU_ARCH__\n" begin)
  if(begin GREATER_EQUAL 0)
    string(SUBSTRING "${left}" 0 ${begin} before)
    math(EXPR begin "${begin} + 19")  # the end of that line
    string(SUBSTRING "${left}" ${begin} -1 left)
    string(FIND "${left}" "\n#else\n" other)
    string(FIND "${left}" "\n#endif  // __NPU_ARCH__\n" end)
    if(other LESS 0 OR end LESS other)
      message(FATAL_ERROR "#ifdef __NPU_ARCH__ needs #else and #endif  // __NPU_ARCH__")
    endif()
    string(SUBSTRING "${left}" 0 ${other} kept)
    math(EXPR length "${end} - ${other}")
    string(SUBSTRING "${left}" ${other} ${length} dropped)
    string(REGEX MATCHALL "\n" newlines "${dropped}")
    list(LENGTH newlines count)
    string(REPEAT "\n" ${count} dropped)
    math(EXPR end "${end} + 24")  # the end of the line of #endif
    string(SUBSTRING "${left}" ${end} -1 left)
    set(left "${before}${kept}${dropped}\n${left}")
  endif()
  set(left "${left}" PARENT_SCOPE)
endfunction()

# Appends the file at `path`, called `name` in messages, to `text`.
function(append_file path name)
  if(path IN_LIST files)
    set(text "${text}" PARENT_SCOPE)
    set(files "${files}" PARENT_SCOPE)
    return()
  endif()
  list(APPEND files ${path})
  file(READ ${path} left)
  string(REPLACE "#pragma once\n" "\n" left "${left}")
  if(BACKEND STREQUAL "ascend")
    keep_device_part()
  endif()
  string(APPEND text "#line 1 \"${name}\"\n")
  set(line 1)
  while(left MATCHES "(^|\n)#include ([^\n]*)\n")
    set(whole "${CMAKE_MATCH_0}")
    set(start "${CMAKE_MATCH_1}")
    set(target "${CMAKE_MATCH_2}")
    if(NOT target MATCHES "^\"([^\"]+)\"$")
      message(FATAL_ERROR "${name}: device text can only include its own files, not ${target}")
    endif()
    set(target "${CMAKE_MATCH_1}")
    string(FIND "${left}" "${whole}" place)
    string(SUBSTRING "${left}" 0 ${place} before)
    string(LENGTH "${whole}" length)
    math(EXPR place "${place} + ${length}")
    string(SUBSTRING "${left}" ${place} -1 left)
    string(APPEND before "${start}")
    string(APPEND text "${before}")
    string(REGEX MATCHALL "\n" newlines "${before}")
    list(LENGTH newlines count)
    math(EXPR line "${line} + ${count} + 1")
    append_file(${ROOT}/${target} ${target})
    string(APPEND text "#line ${line} \"${name}\"\n")
  endwhile()
  string(APPEND text "${left}")
  set(text "${text}" PARENT_SCOPE)
  set(files "${files}" PARENT_SCOPE)
endfunction()

cmake_path(RELATIVE_PATH FILE BASE_DIRECTORY ${ROOT} OUTPUT_VARIABLE name)
string(REPLACE "../" "" name ${name})
append_file(${FILE} ${name})
string(REPLACE "#vendor_include " "#include " text "${text}")

set(code "\n${text}")
string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" " " code "${code}")
string(REGEX REPLACE "//[^\n]*" "" code "${code}")
string(REGEX REPLACE "\n#line[^\n]*" "" code "${code}")
string(REGEX REPLACE "[ \t]+\n" "\n" code "${code}")
string(REGEX REPLACE "\n[ \t\n]*" "\n" code "${code}")
string(SHA256 digest "${code}")

file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
"// Generated by cmake/embed_text.cmake from @name@.
#include \"runtime/@BACKEND@/text.h\"

namespace tilekernels::@BACKEND@ {
extern const Text @OP@_text;
const Text @OP@_text{\"@OP@\", \"@digest@\", R\"device_text(@text@)device_text\"};
}  // namespace tilekernels::@BACKEND@
")
list(JOIN files " " dependencies)
file(WRITE ${DEPFILE} "${OUTPUT}: ${dependencies}\n")
