"""What the text of a model gives away."""

from __future__ import annotations

import pytest

from laminar_dagster.models.purity import impurities


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("import time", "wall_clock"),
        ("from datetime import datetime as d\nd.now()", "wall_clock"),
        ("import datetime\ndatetime.date.today()", "wall_clock"),
        ("import numpy as np\nnp.datetime64('now')", "wall_clock"),
        ("import pandas as pd\nSTART = pd.Timestamp('now')", "wall_clock"),
        ("import pandas as pd\nSTART = pd.Timestamp(ts_input='today')", "wall_clock"),
        ("from pandas import to_datetime\nSTART = to_datetime('now')", "wall_clock"),
        ("import pandas as pd\ndef f(t): return pd.to_datetime(['today'])", "wall_clock"),
        ("import pandas as pd\nd = pd.date_range('today', periods=2)", "wall_clock"),
        ("import pandas as pd\nd = pd.Series(['now'], dtype='datetime64[ns]')", "wall_clock"),
        ("import numpy as np\nd = np.array(['now'], dtype='M8[s]')", "wall_clock"),
        ("from random import choice", "random"),
        ("import numpy as np\nnp.random.default_rng(1)", "random"),
        ("from numpy import random as r", "random"),
        ("from uuid import uuid4", "random"),
        ("hash('a')", "random"),
        ("for x in {1, 2}: pass", "random"),
        ("y = [x for x in set('ab')]", "random"),
        ("s = {1, 2}\ny = list(s)", "random"),
        ("','.join({'a', 'b'})", "random"),
        ("import os", "side_effect"),
        ("import os.path as p", "side_effect"),
        ("from urllib.request import urlopen", "side_effect"),
        ("import pyarrow.parquet as pq", "side_effect"),
        ("open('x')", "side_effect"),
        ("f = open", "side_effect"),
        ("exit(1)", "side_effect"),
        ("__import__('os')", "side_effect"),
        ("from . import other", "side_effect"),
        ("from math import *", "side_effect"),
        ("async def f(): pass", "side_effect"),
        ("seen = {}\ndef f(x):\n  seen[x] = 1", "hidden_state"),
        ("seen = []\ndef f(x):\n  seen.append(x)", "hidden_state"),
        ("n = 0\ndef f():\n  global n\n  n += 1", "hidden_state"),
        ("class A:\n  def f(self):\n    self.n = 1", "hidden_state"),
        ("class A:\n  def f(self):\n    self.n.update({})", "hidden_state"),
        ("def f(x, seen={}): pass", "hidden_state"),
        ("import pyarrow.compute as pc\npc.sum(x)", "other_rows"),
        ("from pyarrow.compute import cumulative_sum", "other_rows"),
        ("def f(t): return t.sort_by('a')", "other_rows"),
        ("def f(t): return t.group_by('a')", "other_rows"),
        ("import pandas as pd\nx = pd.read_csv('a')", "side_effect"),
        ("import pandas as pd\ndef f(t): return t.to_parquet('a')", "side_effect"),
        ("import pandas as pd\ndef f(t): return pd.qcut(t['a'], 4)", "other_rows"),
        ("from pandas import DataFrame\ndef f(t): return t['a'].shift()", "other_rows"),
        ("import pandas as pd\ndef f(t): return t['a'] - t['a'].mean()", "other_rows"),
        ("import pandas as pd\ndef f(t): return t.sum(axis=0)", "other_rows"),
        ("import pandas as pd\ndef f(t): return t.sort_values('a')", "other_rows"),
        ("import pandas as pd\ndef f(t): return t.groupby('a')", "other_rows"),
    ],
)
def test_what_is_not_a_function_of_its_rows_is_found(text: str, kind: str) -> None:
    found = impurities(text)
    assert [each.kind for each in found][:1] == [kind]
    assert found[0].line in (len(text.splitlines()), len(text.splitlines()) - 1)


@pytest.mark.parametrize(
    "text",
    [
        "from datetime import datetime, timedelta, UTC\nx = datetime(2026, 1, 1, tzinfo=UTC)",
        "import hashlib, json, math, re, zlib, urllib.parse",
        "x = sorted({1, 2})\ny = 3 in {1, 2}\nz = len(set('a'))",
        "known = {'a': 1}\ndef f(x):\n  return known.get(x)",
        "def f(x):\n  found = []\n  found.append(x)\n  return found",
        "seen = []\ndef f(seen):\n  seen.append(1)",
        "import pyarrow.compute as pc\npc.add(1, 2)\npc.list_flatten(x)",
        "import uuid\nuuid.uuid5(uuid.NAMESPACE_URL, 'a')",
        "import pandas as pd\ndef f(t): return t[['a', 'b']].sum(axis=1)",
        "import pandas as pd\ndef f(t): return t['a'].str.count('x') + t['at'].dt.rank",
        "import pandas as pd\ndef f(t): return t.assign(a=1)[t['b'] > 0].explode('c')",
        "import pandas as pd\ndef f(text): return text.count(',')",
        "def f(t): return t.shift(), t.count()",
        "import pandas as pd\nx = pd.Timestamp('2026-01-01')\ny = pd.Series(['now'])",
        "import pandas as pd\ndef f(t): return pd.to_datetime(t['today'])",
    ],
)
def test_what_is_one_passes(text: str) -> None:
    assert impurities(text) == ()


@pytest.mark.parametrize(
    "text",
    [
        # Of a function: assigned, given, bound by any statement that binds.
        "def f(rows):\n  id = rows['page']\n  return id",
        "def f(rows):\n  return id\n  id = 1",
        "def f(input, *open, hash=1, **eval): return input, open, hash, eval",
        "def f(x):\n  for id, (hash, *open) in x: print(id, hash, open)",
        "def f(x):\n  with x as open: return open",
        "def f(x):\n  try: pass\n  except ValueError as id: return id",
        "def f(x):\n  match x:\n    case [id, *hash]: return id, hash",
        "def f(x):\n  match x:\n    case {'a': 1, **input}: return input",
        "def f(x):\n  match x:\n    case str() as open: return open",
        "def f(x):\n  if (id := x): return id",
        "def f(x):\n  id: int = x\n  return id",
        "def f(x):\n  def hash(x): return x\n  return hash(x)",
        "def f(x):\n  class input: pass\n  return input()",
        "def f(x):\n  from gzip import open\n  return open",
        # Of a comprehension, and what it hands to the function around.
        "def f(x): return [id for id in x]",
        "def f(x): return {id: hash for id, hash in x if id > hash}",
        "def f(x): return {id for y in x for id in y}, sum(open for open in x)",
        "def f(x): return [id + 1 for id in [id for id in x]]",
        "def f(x): return [y for y in x if (id := y)], id",
        "x = [id for id in (1, 2)]",
        "class A:\n  x = [id for id in (1, 2)]",
        # Of what is around.
        "def f(id):\n  def g(): return id\n  return g",
        "def f(id): return lambda: id",
        "def f(id): return [id for _ in (1, 2)]",
        "f = lambda id, hash=1: id + hash",
        # Of the module, for functions that are called later.
        "def id(x): return x\ndef f(x): return id(x)",
        "def f(x): return id\nid = 1",
        "for id in (1, 2): print(id)",
        "class id: pass\ny = id",
        "id, (hash, *input) = 1, (2, 3)\ny = id, hash, input",
        "class A:\n  id = 1\n  x = id",
        "import pyarrow.compute as pc\ndef f(pc): return pc.sum(1)",
        # Another name that holds a set.
        "def f():\n  names = {1, 2}\n  return len(names)\ndef g(names): return list(names)",
    ],
)
def test_a_name_that_is_given_to_something_else_is_no_builtin(text: str) -> None:
    assert impurities(text) == ()


@pytest.mark.parametrize(
    ("text", "line", "call"),
    [
        ("def f(x):\n  id = x\ndef g(x):\n  return id(x)", 4, "id"),
        ("def f(id): pass\ndef g(x): return id(x)", 2, "id"),
        ("def f(x): return [id for id in x], id(x)", 1, "id"),
        ("def f(x): return [open for open in open(x)]", 1, "open"),
        ("def f(x): return [y for y in x for hash in hash(y)]\nhash(1)", 2, "hash"),
        ("f = lambda id: id\ny = id(1)", 2, "id"),
        ("def f(x=id(1)):\n  id = 2", 1, "id"),
        ("def f(x):\n  def g(id): return id\n  return id(x)", 3, "id"),
        ("def f(x):\n  def g():\n    id = 1\n  return id(x)", 4, "id"),
        # The body of a class is not around its functions, nor around its comprehensions.
        ("class A:\n  id = 1\n  def f(self, x): return id(x)", 3, "id"),
        ("class A:\n  open = 1\n  x = [open('a') for _ in (1, 2)]", 3, "open"),
        # What runs from top to bottom has a name from where it is given on.
        ("id = id(1)", 1, "id"),
        ("y = hash('a')\nhash = 1", 1, "hash"),
        ("class A:\n  id = id(1)", 2, "id"),
        ("y = id(1)\ndef id(x): return x", 1, "id"),
        # An import in one function is none in another.
        ("def f():\n  from gzip import open\ndef g(): return open('x')", 3, "open"),
    ],
)
def test_a_builtin_that_is_hidden_elsewhere_is_refused(text: str, line: int, call: str) -> None:
    assert [(each.line, each.call) for each in impurities(text)] == [(line, call)]


@pytest.mark.parametrize(
    "text",
    [
        "seen = []\ndef f(x):\n  def g(seen): pass\n  seen.append(x)",
        "if True:\n  seen = {}\ndef f(x):\n  seen[x] = 1",
        "seen = []\nf = lambda x: seen.append(x)",
        "seen = []\ndef f(x): return [seen.append(y) for y in x]",
    ],
)
def test_what_outlives_a_call_is_told_by_where_its_name_is_given(text: str) -> None:
    assert [each.kind for each in impurities(text)] == ["hidden_state"]
