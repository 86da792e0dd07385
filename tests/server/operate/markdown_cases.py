"""Markdown of answers, and the elements that the chat page makes from it. tests/python/test_chat_page.py runs the cases in node, and
tools/browser_check.py in Chromium."""

COPY = '<button type="button">Copy</button>'


def code(text, language="text"):
    return f'<figure class="code"><figcaption><span>{language}</span>{COPY}</figcaption><pre tabindex="0"><code>{text}</code></pre></figure>'


def link(address, text=None):
    return f'<a href="{address}" title="{address}" target="_blank" rel="noopener noreferrer nofollow">{text or address}</a>'


def table(head, *rows, align=()):
    def line(tag, cells, scope=""):
        classes = [f' class="{align[i]}"' if i < len(align) and align[i] else "" for i in range(len(cells))]
        return "<tr>" + "".join(f"<{tag}{scope}{mark}>{cell}</{tag}>" for cell, mark in zip(cells, classes)) + "</tr>"

    body = f'<tbody>{"".join(line("td", row) for row in rows)}</tbody>' if rows else ""
    head = f'<thead>{line("th", head, " scope=" + chr(34) + "col" + chr(34))}</thead>'
    return f'<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>{head}{body}</table></div>'


COMPLETE = {
    "empty": ("", ""),
    "paragraphs": ("One.\n\nTwo,\nthree.", "<p>One.</p><p>Two,<br>three.</p>"),
    "line ends of other systems": ("a\r\nb\r\rc", "<p>a<br>b</p><p>c</p>"),
    "headings": ("# A #\n### B\n###### C\n#no", '<h4 class="level-1">A</h4><h4 class="level-3">B</h4><h6 class="level-6">C</h6><p>#no</p>'),
    "emphasis": ("*a* _b_ **c** __d__ ***e*** ~~f~~",
                 "<p><em>a</em> <em>b</em> <strong>c</strong> <strong>d</strong> <em><strong>e</strong></em> <del>f</del></p>"),
    "nested emphasis": ("**a *b* c** *d **e***", "<p><strong>a <em>b</em> c</strong> <em>d <strong>e</strong></em></p>"),
    "characters that are no emphasis": ("5 * 3 * 2, snake_case_name, 2**3, a ~ b", "<p>5 * 3 * 2, snake_case_name, 2**3, a ~ b</p>"),
    "emphasis around an open bracket": ("**The interval [0, 1)** is half open", "<p><strong>The interval [0, 1)</strong> is half open</p>"),
    "escapes": (r"\*a\* \# \\ \a", r"<p>*a* # \ \a</p>"),
    "entities": ("a &lt; b &amp; c &copy;", "<p>a &lt; b &amp; c &amp;copy;</p>"),
    "code spans": ("`a *b* <c>` ``d`e`` `f", "<p><code>a *b* &lt;c&gt;</code> <code>d`e</code> `f</p>"),
    "fences": ("```python\nif a:\n  b\n```\nafter", code("if a:\n  b", "python") + "<p>after</p>"),
    "fence of tildes": ("~~~\n```\n~~~", code("```")),
    "longer fence": ("````md\n```\nx\n```\n````", code("```\nx\n```", "md")),
    "indented fence": ("1. a\n   ```\n   b\n     c\n   ```\n2. d", f"<ol><li>a{code('b' + chr(10) + '  c')}</li><li>d</li></ol>"),
    "rule": ("a\n\n---\n***\nb", "<p>a</p><hr><hr><p>b</p>"),
    "quotes": ("> a\n> > b\n>\n> c\nd", "<blockquote><p>a</p><blockquote><p>b</p></blockquote><p>c<br>d</p></blockquote>"),
    "lists": ("- a\n- b\n  - c\n  - d\n- e\n\ntext", "<ul><li>a</li><li>b<ul><li>c</li><li>d</li></ul></li><li>e</li></ul><p>text</p>"),
    "ordered list": ("3. a\n4. b\n   - c", '<ol start="3"><li>a</li><li>b<ul><li>c</li></ul></li></ol>'),
    "list below a number with two spaces": ("1. a\n  - b\n2. c", "<ol><li>a<ul><li>b</li></ul></li><li>c</li></ol>"),
    "loose list": ("- a\n\n- b\n\n  c", "<ul><li><p>a</p></li><li><p>b</p><p>c</p></li></ul>"),
    "list of another kind": ("- a\n* b\n1. c", "<ul><li>a</li></ul><ul><li>b</li></ul><ol><li>c</li></ol>"),
    "list after a paragraph": ("Steps:\n1. a\n2. b", "<p>Steps:</p><ol><li>a</li><li>b</li></ol>"),
    "number that begins a line": ("It was\n2024. Then", "<p>It was<br>2024. Then</p>"),
    "tasks": ("- [ ] a\n- [x] b", "<ul><li>\u2610 a</li><li>\u2611 b</li></ul>"),
    "table": ("| a | b |\n|:--|--:|\n| **1** | `x|y` |\n| 2 |\n\ntext",
              table(["a", "b"], ["<strong>1</strong>", "`x"], ["2"], align=["left", "right"]) + "<p>text</p>"),
    "escaped bar and line break in a table": ("a|b\n-|-\nx \\| y|1<br>2", table(["a", "b"], ["x | y", "1<br>2"])),
    "bars without a table": ("a | b\nc | d", "<p>a | b<br>c | d</p>"),
    "links": ("[a *b*](https://x.example/y_z?q=1&r=(2) \"title\") <mailto:a@b.example>",
              "<p>" + link("https://x.example/y_z?q=1&amp;r=(2)", "a <em>b</em>") + " " + link("mailto:a@b.example") + "</p>"),
    "bare links": ("See https://x.example/a_b (or http://y.example/c(d)).",
                   "<p>See " + link("https://x.example/a_b") + " (or " + link("http://y.example/c(d)") + ").</p>"),
    "link as the label of a link": ("[https://x.example](https://y.example)", "<p>" + link("https://y.example", "https://x.example") + "</p>"),
    "brackets that are no link": ("a[0](1) [b] [c][d]", "<p>a[0](1) [b] [c][d]</p>"),
    "image": ("![a cat](https://x.example/cat.png) ![](https://x.example/b.png)",
              "<p>" + link("https://x.example/cat.png", "a cat") + " " + link("https://x.example/b.png") + "</p>"),
    "image in a link": ("[![alt](https://x.example/b.svg)](https://y.example)", "<p>" + link("https://y.example", "alt") + "</p>"),
}

# Each text tries to insert markup, to run a script, or to load something. It must stay text.
HOSTILE = {
    "script": ("<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"),
    "image with a handler": ("<img src=x onerror=alert(1)>", "<p>&lt;img src=x onerror=alert(1)&gt;</p>"),
    "markup in every kind of block": ("# <b>\n- <i>\n> <u>\n\n|<s>|\n|-|\n|<a>|",
                                      '<h4 class="level-1">&lt;b&gt;</h4><ul><li>&lt;i&gt;</li></ul><blockquote><p>&lt;u&gt;</p></blockquote>'
                                      + table(["&lt;s&gt;"], ["&lt;a&gt;"])),
    "markup in code": ("```\n</code></pre><script>\n```\n`</code><b>`",
                       code("&lt;/code&gt;&lt;/pre&gt;&lt;script&gt;") + "<p><code>&lt;/code&gt;&lt;b&gt;</code></p>"),
    "language of a fence": ('```"><script>x\na\n```', code("a", '"&gt;&lt;script&gt;x')),
    "javascript link": ("[a](javascript:alert(1))", "<p>[a](javascript:alert(1))</p>"),
    "link of another case": ("[a](JaVaScRiPt:alert(1))", "<p>[a](JaVaScRiPt:alert(1))</p>"),
    "link with a control character": ("[a](java\x01script:alert(1)) [b](\x01javascript:1)",
                                      "<p>[a](java\x01script:alert(1)) [b](\x01javascript:1)</p>"),
    "link with an entity": ("[a](javascript&#58;alert(1))", "<p>[a](javascript&amp;#58;alert(1))</p>"),
    "data link": ("[a](data:text/html,x) [b](vbscript:x) [c](file:///etc/passwd)", "<p>[a](data:text/html,x) [b](vbscript:x) [c](file:///etc/passwd)</p>"),
    "link to this server": ("[a](/pause) [b](//x.example) [c](#d)", "<p>[a](/pause) [b](//x.example) [c](#d)</p>"),
    "quote in an address": ('[a](https://x.example/"onclick="alert(1))', '<p>[a](' + link("https://x.example/") + '"onclick="alert(1))</p>'),
    "markup in a label": ("[<img src=x>](https://x.example)", "<p>" + link("https://x.example", "&lt;img src=x&gt;") + "</p>"),
    "direction marks in an address": ("[a](https://x.example/\u202egnp.exe)", "<p>[a](https://x.example/\u202egnp.exe)</p>"),
    "angle link": ("<javascript:alert(1)>", "<p>&lt;javascript:alert(1)&gt;</p>"),
    "entities of a tag": ("&lt;script&gt;", "<p>&lt;script&gt;</p>"),
}

# Texts that have not ended: (text, elements).
STREAMED = {
    "fence": ("a\n```py\nprint(", "<p>a</p>" + code("print(", "py")),
    "end of a fence": ("```py\nx\n``", code("x", "py")),
    "header of a table": ("| a | b |", table(["a", "b"])),
    "delimiter of a table": ("| a | b |\n|--", table(["a", "b"])),
    "row of a table": ("| a | b |\n|--|--|\n| 1 | **2", table(["a", "b"], ["1", "<strong>2</strong>"])),
    "emphasis": ("a **b c", "<p>a <strong>b c</strong></p>"),
    "begin of emphasis": ("a **", "<p>a </p>"),
    "code span": ("a `b", "<p>a <code>b</code></p>"),
    "address of a link": ("see [the page](https://x.exa", "<p>see the page</p>"),
    "marker of a list": ("- a\n-", "<ul><li>a</li></ul>"),
    "marker of a heading": ("a\n\n##", "<p>a</p>"),
}
