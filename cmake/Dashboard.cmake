# Puts the page at /dashboard into the binary: one document, made of the files of src/server/operate/dashboard.
set(dashboard "${PROJECT_SOURCE_DIR}/src/server/operate/dashboard")
file(READ "${dashboard}/style.css" QUIRE_DASHBOARD_STYLE)
set(QUIRE_DASHBOARD_SCRIPT "")
# The order matters: each file may use the files before it.
foreach(part frames colours blocks lanes charts explain page controls)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${dashboard}/${part}.js")
  file(READ "${dashboard}/${part}.js" text)
  string(APPEND QUIRE_DASHBOARD_SCRIPT "${text}")
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${dashboard}/page.html" "${dashboard}/style.css")
configure_file("${dashboard}/page.html" generated/dashboard.html @ONLY)
quire_embed(server_operate server/operate/dashboard_page.h dashboard_page_html "${PROJECT_BINARY_DIR}/generated/dashboard.html")
