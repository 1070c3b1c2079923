# Read after every project() of an engine tree (CMAKE_PROJECT_INCLUDE), the unpatched base too.

if (PROJECT_NAME STREQUAL "ggml")
    # As in the engine that ships: ggml is shared, everything above it is one program.
    set(BUILD_SHARED_LIBS ON)
elseif (PROJECT_NAME STREQUAL "llama.cpp")
    set(OPENCOTI_PROBE_SOURCE "${CMAKE_CURRENT_LIST_DIR}")
    cmake_language(DEFER CALL include "${OPENCOTI_PROBE_SOURCE}/probe.cmake")
endif()
