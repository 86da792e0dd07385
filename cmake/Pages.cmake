# Puts the pages of the server into the binary. Each page is one document, made of the files of a folder of src/server/operate.

# quire_embed_page(FOLDER HEADER FUNCTION PART...): makes the document from page.html, style.css and the scripts FOLDER/PART.js. The order of the
# parts matters: each script may use the scripts before it while the page starts.
function(quire_embed_page folder header function)
  set(from "${PROJECT_SOURCE_DIR}/src/server/operate/${folder}")
  file(READ "${from}/style.css" QUIRE_PAGE_STYLE)
  set(QUIRE_PAGE_SCRIPT "\"use strict\";\n")
  foreach(part ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${from}/${part}.js")
    file(READ "${from}/${part}.js" text)
    string(APPEND QUIRE_PAGE_SCRIPT "${text}")
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${from}/page.html" "${from}/style.css")
  configure_file("${from}/page.html" generated/${folder}.html @ONLY)
  quire_embed(server_operate ${header} ${function} "${PROJECT_BINARY_DIR}/generated/${folder}.html")
endfunction()

quire_embed_page(dashboard server/operate/dashboard_page.h dashboard_page_html frames colours blocks lanes charts explain page controls)
quire_embed_page(chat server/operate/chat_page.h chat_page_html
                 markdown markdown_inline markdown_view conversations settings server progress answer_view attachments turns chat page)
