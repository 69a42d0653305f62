"""wordcount.yaml in Python: the same document. `treadle run workflow.py -i corpus='books/*.txt'`."""

from wordcount import add, as_records, cut, merge, most_frequent, tokenize

from treadle.dsl import Workflow, parquet, run, text

wf = Workflow("wordcount")
corpus = wf.input("corpus", "uri", required=True, description="text files, such as books/*.txt")
partitions = wf.input("partitions", int, default=8, minimum=1)
most = wf.input("most", int, default=10, minimum=1)

words = wf.map("tokenize", text(corpus, split="1MiB"), uses=tokenize)
groups = wf.shuffle("group", words, by="key", partitions=partitions, combine=add)
files = parquet(f"out/{run.id}/counts", columns={"word": "string", "count": "int64"})
counts = wf.reduce("count", groups, per="key", combine=add, output=files)

leaders = wf.map("leaders", counts, per="partition", uses=most_frequent, with_={"most": most})
ranking = wf.reduce("ranking", leaders, per="all", combine=merge, finish=cut, with_={"most": most})
wf.map("top", ranking, uses=as_records)  # kept with the run: treadle result RUN --stage top

wf.output("counts", counts.output.uri)
