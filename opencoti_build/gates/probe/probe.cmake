# opencoti-probe: a part of each gate build, linked with the libraries of that tree.

foreach (name main evaluate compare logits-file)
    list(APPEND OPENCOTI_PROBE_FILES "${OPENCOTI_PROBE_SOURCE}/${name}.cpp")
endforeach()
add_executable(opencoti-probe ${OPENCOTI_PROBE_FILES})
target_link_libraries(opencoti-probe PRIVATE llama-common)
target_compile_features(opencoti-probe PRIVATE cxx_std_17)
