"""Configures each agent for the server, and has the texts with which its model calls its tools.

An Agent gets a scratch home and a folder. `script` returns the answers of the model, one per turn: it reads hello.py, fixes it and runs it.
"""
import dataclasses
import json
import os
import pathlib

TASK = "Mend the typo in hello.py, then run it."
BROKEN, MENDED, SAID = 'print("helo world")\n', 'print("hello world")\n', "hello world"
FINAL = "It says hello world now."


def call(name, **arguments):
    return f'<tool_call>\n{json.dumps({"name": name, "arguments": arguments})}\n</tool_call>'


def thought(text, rest):
    return f"<think>\n{text}\n</think>\n\n{rest}"


WRONG = 'print("hello wrld")\n'


def replaced(before, after):
    return f"hello.py\n```python\n<<<<<<< SEARCH\n{before}=======\n{after}>>>>>>> REPLACE\n```\n"


@dataclasses.dataclass
class Agent:
    name: str
    package: str
    turns: list  # the texts of the model, for a folder
    command: object  # a function of the folder, the home and the URL
    settings: object = lambda home, url: {}  # files, by their path in the home
    env: dict = dataclasses.field(default_factory=dict)
    tool: str = ""  # text in the prompts of its loop, but not in its other prompts (titles, summaries)
    has_session: bool = False  # it sends a session id, so that its turns are one job
    breaks: str = ""  # the reason why the cache does not have all of the earlier turns
    least: float = 0.9  # least share of a prompt that the cache has
    last: list = None  # last text in the prompt of each turn, for an agent that rebuilds its turns

    def script(self, folder):
        rules = [{"has": [self.tool, TASK], **({"last": [self.last[turn]]} if self.last else {"turn": turn}), "say": say}
                 for turn, say in enumerate(self.turns(pathlib.Path(folder)))]  # fmt: skip
        if not self.last:
            rules[-1]["last"] = [SAID]  # the last answer requires the output of the program in the prompt
        return {"rules": rules, "otherwise": "A title"}


NODE = pathlib.Path(os.environ.get("QUIRE_AGENTS_NODE", "."), "node_modules")
PYTHON = pathlib.Path(os.environ.get("QUIRE_AGENTS_PYTHON", "."))


def binary(package, path):
    return str(NODE / package / path)


CLAUDE = Agent(
    "Claude Code", "@anthropic-ai/claude-code",
    lambda folder: [
        thought("I read it first.", "I look at it.\n" + call("Read", file_path=str(folder / "hello.py"))),
        thought("helo is the typo.", call("Edit", file_path=str(folder / "hello.py"), old_string="helo", new_string="hello")),
        thought("Now it must run.", call("Bash", command="python3 hello.py", description="Run it")), FINAL],
    lambda folder, home, url: [binary("@anthropic-ai/claude-code-linux-x64", "claude"), "-p", TASK, "--model", "scripted", "--permission-mode",
                               "acceptEdits", "--allowedTools", "Read", "Edit", "Bash"],
    env={"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": "none", "ANTHROPIC_SMALL_FAST_MODEL": "scripted",
         "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1"},
    tool='"name": "Edit"', has_session=True, breaks="the agent adds the default of an argument that the model omitted", least=0.99)  # fmt: skip

CODEX = Agent(
    "Codex", "@openai/codex",
    lambda folder: [
        thought("I read it first.", "I look at it.\n" + call("exec_command", cmd="cat hello.py")),
        thought("helo is the typo.", call("exec_command", cmd="sed -i s/helo/hello/ hello.py")),
        thought("Now it must run.", call("exec_command", cmd="python3 hello.py")), FINAL],
    lambda folder, home, url: [binary("@openai/codex-linux-x64", "vendor/x86_64-unknown-linux-musl/bin/codex"), "exec", "--skip-git-repo-check",
                               "--dangerously-bypass-approvals-and-sandbox", TASK],
    lambda home, url: {".codex/config.toml": f"""model = "scripted"
model_provider = "quire"
model_context_window = 131072
check_for_update_on_startup = false

[model_providers.quire]
name = "quire"
base_url = "{url}/v1"
wire_api = "responses"

[analytics]
enabled = false
"""},
    tool='"name": "exec_command"', has_session=True)  # fmt: skip

OPENCODE = Agent(
    "opencode", "opencode-ai",
    lambda folder: [
        thought("I read it first.", "I look at it.\n" + call("read", filePath=str(folder / "hello.py"))),
        thought("helo is the typo.", call("edit", filePath=str(folder / "hello.py"), oldString="helo", newString="hello")),
        thought("Now it must run.", call("bash", command="python3 hello.py", description="Runs it")), FINAL],
    lambda folder, home, url: [binary("opencode-linux-x64", "bin/opencode"), "run", TASK],
    lambda home, url: {".config/opencode/opencode.json": json.dumps({
        "model": "quire/scripted", "small_model": "quire/scripted", "autoupdate": False, "share": "disabled",
        "provider": {"quire": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": url + "/v1", "apiKey": "none"},
                               "models": {"scripted": {"reasoning": True, "tool_call": True,
                                                       "limit": {"context": 131072, "output": 8192}}}}}})},
    env={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
         "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1"},
    tool='"name": "edit"', has_session=True)  # fmt: skip

QWEN = Agent(
    "qwen-code", "@qwen-code/qwen-code",
    lambda folder: [
        thought("I read it first.", "I look at it.\n" + call("read_file", file_path=str(folder / "hello.py"))),
        thought("helo is the typo.", call("edit", file_path=str(folder / "hello.py"), old_string="helo", new_string="hello")),
        thought("Now it must run.", call("run_shell_command", command="python3 hello.py", is_background=False)), FINAL],
    lambda folder, home, url: ["node", binary("@qwen-code/qwen-code", "cli.js"), "-p", TASK, "--yolo"],
    lambda home, url: {".qwen/settings.json": json.dumps({
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False}, "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False}, "security": {"auth": {"selectedType": "openai"}}})},
    env={"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": "scripted"},
    tool='"name": "run_shell_command"')  # fmt: skip

AIDER = Agent(
    "aider", "aider-chat",
    # The first try is wrong, and the run reports it.
    lambda folder: [thought("wrld lacks an o.", replaced(WRONG, MENDED)), thought("helo is the typo.", replaced(BROKEN, WRONG))],
    # It reads the file from its command line, and runs the command of --test-cmd.
    lambda folder, home, url: [str(PYTHON / "aider/bin/aider"), "--model", "openai/scripted", "--openai-api-base", url + "/v1",
                               "--openai-api-key", "none", "--edit-format", "diff", "--no-git", "--yes-always", "--no-check-update",
                               "--analytics-disable", "--no-show-model-warnings", "--no-pretty", "--map-tokens", "0", "--auto-test",
                               "--test-cmd", "python3 hello.py | grep 'hello world'", "--message", TASK, "hello.py"],
    env={"LITELLM_LOCAL_MODEL_COST_MAP": "True"}, tool="SEARCH/REPLACE", last=["grep", TASK],
    breaks="the current file precedes the conversation in the prompt; thoughts are dropped", least=0.6)  # fmt: skip

MINI = Agent(
    "mini-swe-agent", "mini-swe-agent",
    lambda folder: [
        thought("I read it first.", "I look at it.\n" + call("bash", command="cat hello.py")),
        thought("helo is the typo.", call("bash", command="sed -i s/helo/hello/ hello.py")),
        thought("Now it must run.", call("bash", command="python3 hello.py")),
        FINAL + "\n" + call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")],
    lambda folder, home, url: [str(PYTHON / "mini/bin/mini"), "-t", TASK, "-m", "openai/scripted", "-y", "--exit-immediately", "-o",
                               str(home / "trajectory.json")],
    env={"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1", "OPENAI_API_BASE": "{url}/v1",
         "OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    tool='"name": "bash"')  # fmt: skip

AGENTS = [CLAUDE, CODEX, OPENCODE, QWEN, AIDER, MINI]
