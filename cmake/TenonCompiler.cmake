# Warnings and sanitizers, as interface targets so that nothing is global. GCC 12's -Wrestrict misfires on "text" +
# std::string (GCC bug 105651).
add_library(tenon_warnings INTERFACE)
set(host_warnings -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wcast-qual -Wundef
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict> $<$<BOOL:${TENON_WERROR}>:-Werror>)
set(cuda_warnings -Xcompiler=-Wall,-Wextra,-Wno-restrict -Wno-deprecated-gpu-targets $<$<BOOL:${TENON_WERROR}>:-Werror=all-warnings>)
target_compile_options(tenon_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:${host_warnings}>" "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_warnings}>")

# What nearly every source of a program includes is compiled once, but where a compiler cache, which does not know such
# headers, is worth more. With such headers, and at -O1, GCC 12's warnings about bounds misfire; what they look for the
# address sanitizer finds.
if(TENON_SANITIZE OR NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(TENON_PRECOMPILE ON)
endif()
set(TENON_PRECOMPILED_WARNINGS
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds;-Wno-maybe-uninitialized;-Wno-stringop-overflow;-Wno-stringop-overread>")

# Sources that are compiled together share what they include, which is most of what a compiler reads. The names in their
# anonymous namespaces have to differ.
function(tenon_unity target)
  if(TENON_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

if(TENON_SANITIZE)
  # GCC 12 takes the sanitizers' own code for reads of what was never written.
  target_compile_options(tenon_warnings INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  set(sanitize -fsanitize=${TENON_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # To look at a virtual table, the sanitizer opens a pipe: where files are injected to fail, it would find fault
  # itself.
  if(TENON_SANITIZE MATCHES "undefined")
    list(APPEND sanitize -fno-sanitize=vptr)
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${sanitize}>")
  add_link_options(-fsanitize=${TENON_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # As GCC does by itself: the runtime is a library of its own, before which another can stand (tests/faults), and a
    # macro says that it is there.
    string(REGEX MATCH "address|thread" sanitizer "${TENON_SANITIZE}")
    string(TOUPPER "${sanitizer}" macro)
    add_compile_definitions(__SANITIZE_${macro}__)
    string(REGEX REPLACE "address" "asan" runtime "${sanitizer}")
    string(REGEX REPLACE "thread" "tsan" runtime "${runtime}")
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libclang_rt.${runtime}-${CMAKE_SYSTEM_PROCESSOR}.so
      OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    get_filename_component(folder ${runtime} DIRECTORY)
    # A program finds it there, and with it the libraries that it loads: these have no such path of their own.
    add_link_options(-shared-libsan $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-Wl,-rpath,${folder}>)
  endif()
endif()
