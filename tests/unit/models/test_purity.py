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
